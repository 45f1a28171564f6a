"""Texts of skeletons: each a small component that is right as it stands."""

from .skeleton_workload import WORKLOAD

PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{project}"
version = "0.1.0"
dependencies = ["codesign"]

[project.entry-points."codesign.plugins"]
{package} = "{package}"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""

FABRIC = '''"""What a {title} is: say it in one line."""

from codesign.core import quantity
from codesign.model.hardware import Link
from codesign.model.networks.fabrics import AbstractFabric, Group
from jaxtyping import Array, Float


class {cls}(AbstractFabric):
    """`endpoints` devices, any pair of them at full rate.

    Assumes: no congestion.
    """

    endpoints: Float[Array, "*b"] = quantity(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="payload per direction per endpoint")
    latency_s: Float[Array, "*b"] = quantity(doc="of one message")
    usd_per_endpoint: Float[Array, "*b"] = quantity(default=0.0)
    static_w_per_endpoint: Float[Array, "*b"] = quantity(default=0.0)

    def link(self, group: Group) -> Link:
        """The same for every group."""
        del group
        return Link(self.latency_s, 1 / self.bandwidth_bytes_per_s)

    def reach(self) -> Array:
        """All endpoints."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Price per endpoint."""
        return self.usd_per_endpoint

    def static_power_w(self) -> Array:
        """Power per endpoint, whether or not anything moves."""
        return self.static_w_per_endpoint

    @classmethod
    def example(cls) -> "{cls}":
        """Eight devices: what `codesign check-plugin` prices."""
        return cls(8.0, 450e9, 1e-6)
'''

COLLECTIVE = '''"""What a {title} is: say it in one line."""

from codesign.core import Cost
from codesign.model.hardware import Link
from codesign.model.networks.collectives import AbstractCollective, among_many
from codesign.model.networks.fabrics import Group
from jaxtyping import Array


class {cls}(AbstractCollective):
    """2 (n-1) alpha + 2 (n-1)/n nbytes beta.

    Assumes: equal parts. Source: where the formula stands.
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """So many rounds, so many bytes through each member's link."""
        n = group.size
        return among_many(group, link, 2 * (n - 1), 2 * (n - 1) / n * nbytes)
'''

SEARCH = '''"""What a {title} is: say it in one line."""

from dataclasses import dataclass

import numpy as np
from codesign.search import AbstractSearch, Problem, Report, Trace, silent


@dataclass(frozen=True)
class {cls}(AbstractSearch):
    """So many random legal plans, each with the hardware in the middle of its range; proves nothing.

    Args:
        plans: how many.
    """

    plans: int = 256

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Choose designs; they are priced exactly afterwards, and ranked."""
        table = problem.space.legal_sample(problem.scenario, self.plans, seed)
        points = {{name: table[:, j] for j, name in enumerate(problem.space.plan)}}
        middle = {{name: (each.low * each.high) ** 0.5 for name, each in problem.space.hardware.items()}}
        points |= {{name: np.full(len(table), value) for name, value in middle.items()}}
        return Trace(points, ["{name}"] * len(table), {{"points": len(table)}}, {{}}, "random plans, no proof")
'''

KERNEL = '''"""What a {title} is: say it in one line."""

import jax.numpy as jnp
from codesign.core import maximum, quantity
from codesign.model.hardware import AbstractKernel, Work
from jaxtyping import Array, Float


class {cls}(AbstractKernel):
    """t0 + the longer of arithmetic and traffic, each at its share of the peak; nothing for no work.

    Assumes: both overlap. Source: where the formula stands.
    """

    t0_s: Float[Array, "*b"] = quantity(default=3e-6)
    compute_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=1.5, default=0.7)
    memory_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=4.0, default=0.7)

    def time_s(self, work: Work, peak_flops_per_s: Array, bandwidth_bytes_per_s: Array) -> Array:
        """Seconds of one launch."""
        arithmetic = work.flops / (self.compute_ratio * peak_flops_per_s)
        traffic = work.nbytes / (self.memory_ratio * bandwidth_bytes_per_s)
        return jnp.where(work.flops + work.nbytes > 0, self.t0_s + maximum(arithmetic, traffic), 0.0)
'''

RUNNER = '''"""What a {title} is: say it in one line."""

import multiprocessing
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass

from codesign.executors import AbstractRunner, Result, Task


@dataclass(frozen=True)
class {cls}(AbstractRunner):
    """So many processes of this machine; a search ends where one of them is lost.

    Args:
        workers: tasks under way at the same time; 0 for one a processor.
        chunk_s: seconds that one task should take.
        retries: of a task whose worker was lost.
    """

    workers: int = 2
    chunk_s: float = 10.0
    retries: int = 0

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """As they come; None every second in which nothing does."""
        pool = ProcessPoolExecutor(self.count, multiprocessing.get_context("spawn"))
        try:
            waiting = {{pool.submit(work, task) for task in tasks}}
            while waiting:
                done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done) if done else (None,)
        finally:  # whoever has heard enough closes this
            pool.shutdown(wait=False, cancel_futures=True)
'''

EXPERIMENT = """# @package _global_
# {title}: what is asked, in one line
defaults:
  - train_gpt3_175b

name: {name}
objective:
  limits:
    capex_usd: 60.0e+6
"""

CLASSES = {
    "fabric": FABRIC, "collective": COLLECTIVE, "kernel": KERNEL, "search": SEARCH, "runner": RUNNER,
    "workload": WORKLOAD,
}  # fmt: skip

GROUPS = {"kernel": "calibration"}
"""Groups of `conf/` that are called otherwise than what they choose."""

FILES = {
    "fabric": """# @package cluster.network.scale_up.fabric
# {title}: what it is, in one line
_target_: {package}.{cls}
endpoints: 8
bandwidth_bytes_per_s: 450.0e+9
latency_s: 1.0e-6
provenance:
  bandwidth_bytes_per_s: {{source: assumption, kind: assumed, note: "where the number comes from"}}
  latency_s: {{source: assumption, kind: assumed, note: "where the number comes from"}}
""",
    "collective": """# @package cluster.network.scale_up.collectives
# {title} for all-reduce, rings for the rest
_target_: codesign.model.networks.collectives.Collectives
all_reduce: {{_target_: {package}.{cls}}}
all_gather: {{_target_: codesign.model.networks.collectives.RingAllGather}}
reduce_scatter: {{_target_: codesign.model.networks.collectives.RingAllGather}}
all_to_all: {{_target_: codesign.model.networks.collectives.PairwiseAllToAll}}
send: {{_target_: codesign.model.networks.collectives.Send}}
""",
    "kernel": """# @package cluster.accelerator.kernels
# {title} for products of matrices in bf16, rooflines for all else
defaults:
  - h100_sxm_roofline # what is not said below is as there
  - _self_
gemm:
  bf16:
    _target_: {package}.{cls}
    t0_s: 3.0e-06
    compute_ratio: 0.75
    memory_ratio: 0.8
""",
    "runner": """# {title}: where it computes, in one line
_target_: {package}.{cls}
workers: 2
chunk_s: 10.0
""",
    "search": """# {title}: what it does, in one line
_target_: {package}.{cls}
plans: 256
""",
    "accelerator": """# @package _global_
# {title}: what it is, in one line
defaults:
  - h100_sxm # what is not said below is as there
  - _self_
cluster:
  accelerator:
    name: {name}
    aliases: [] # as tables of measurements write it
    prefixes: []
    hbm:
      capacity_bytes: 128.0e+9
    provenance:
      hbm.capacity_bytes: {{source: assumption, kind: assumed, note: "where the number comes from"}}
""",
    "model": """# @package workload.model
# {title}: what it is, in one line
defaults:
  - llama31_70b # what is not said below is as there; `model=hf_config model.path=config.json` needs no file at all
  - _self_
name: {name}
layers: 96
""",
}
