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

from codesign.fabrics import AbstractFabric, Group
from codesign.fields import quantity
from codesign.hardware import Link
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
        """Eight devices: what `codesign check` prices."""
        return cls(8.0, 450e9, 1e-6)
'''

COLLECTIVE = '''"""What a {title} is: say it in one line."""

from codesign.collectives import AbstractCollective
from codesign.collectives.base import among_many
from codesign.cost import Cost
from codesign.fabrics import Group
from codesign.hardware import Link
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

EXPERIMENT = """# @package _global_
# {title}: what is asked, in one line
defaults:
  - train_gpt3_175b

name: {name}
objective:
  limits:
    capex_usd: 60.0e+6
"""

CLASSES = {"fabric": FABRIC, "collective": COLLECTIVE, "search": SEARCH, "workload": WORKLOAD}

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
_target_: codesign.collectives.Collectives
all_reduce: {{_target_: {package}.{cls}}}
all_gather: {{_target_: codesign.collectives.RingAllGather}}
reduce_scatter: {{_target_: codesign.collectives.RingAllGather}}
all_to_all: {{_target_: codesign.collectives.PairwiseAllToAll}}
send: {{_target_: codesign.collectives.Send}}
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
  - llama31_70b # what is not said below is as there; `model=hub model.path=config.json` needs no file at all
  - _self_
name: {name}
layers: 96
""",
}
