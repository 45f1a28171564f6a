"""`codesign scaffold KIND NAME`: a package that works, with one component to be made into what it should be.

What is written is a plug-in (`config/plugins.py`): nothing of this package is edited, and a second component goes into
the same package.
"""

import keyword
import re
import shlex
from pathlib import Path

from ..core.atomic_files import write_files
from ..core.errors import ConfigError, suggestion
from ..core.resources import conf_dir

# Texts of the skeleton of a workload: a family with its model, its plan, its words, and a study of it.


WORKLOAD = '''"""What a {title} is: say it in one line."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from codesign.core import quantity, static
from codesign.model.hardware import Work
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import (
    AbstractPlan,
    AbstractWorkload,
    CommOp,
    ComputeOp,
    Layout,
    Op,
    Precision,
    Priced,
    Timeline,
    Words,
    indivisible,
    total,
)
from jaxtyping import Array, Float


class {cls}Model(eqx.Module):
    """`layers` products of `rows` rows with a square matrix of width `hidden`."""

    hidden: Float[Array, "*b"] = quantity(low=1.0)
    layers: Float[Array, "*b"] = quantity(low=1.0)
    name: str = static(default="{name}")


class {cls}Plan(AbstractPlan):
    """Choices of a plan: ranks that cut every matrix (tp), items of one batch."""

    axes: ClassVar[tuple[str, ...]] = ("tp",)

    tp: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0)
    items: Float[Array, "*b"] = quantity(low=1.0, high=1e6, default=64.0, doc="in one batch of a replica")
    device_count: Float[Array, "*b"] | None = quantity(low=1.0, default=None)

    def ranks(self) -> Array:
        """Devices of one replica."""
        return self.tp

    def members(self, axis: str, layout: Layout) -> Group:
        """Neighbouring devices."""
        del axis, layout
        return Group(self.tp, jnp.ones_like(self.tp))


class {cls}(AbstractWorkload):
    """Batches of `plan.items`, one after the other.

    Assumes: what is sent hides behind nothing. Source: where the formulas stand.
    """

    plan_class: ClassVar[type[AbstractPlan]] = {cls}Plan
    words: ClassVar[Words] = Words(
        "{title}", "batch", "item", ("time_s", "items_per_s"),
        metrics={{"time_s": ("Time of a batch", "s"), "items_per_s": ("Items per second", "count")}},
        parts={{"work": "products", "tp": "sums over tp"}},
        memory={{"items": "items of a batch"}},
        plan={{"items": "{{:g}} items a batch"}},
    )  # fmt: skip

    model: {cls}Model
    precision: Precision = Precision()

    @classmethod
    def example(cls) -> "{cls}":
        """A small one: what `codesign check-plugin` prices."""
        return cls({cls}Model(4096.0, 16.0))

    def number_format(self) -> str:
        """Number format of the products."""
        return self.precision.compute

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Operations of one device in one batch."""
        plan, width = layout.plan, self.model.hidden
        weights, act = (self.precision.bytes_of(name) for name in ("weights", "activations"))
        cut = width / plan.tp
        work = Work(2 * plan.items * width * cut, weights * width * cut + 2 * act * plan.items * width,
                    plan.items, cut, width)  # fmt: skip
        return (
            ComputeOp("products", "gemm", self.precision.compute, "batch", work, self.model.layers),
            CommOp("sums", "all_reduce", "tp", "batch", act * plan.items * width, self.model.layers),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Products, then sums; `flops` are those of the model, whatever a plan computes twice."""
        work, sums = total(priced, "batch", ComputeOp), total(priced, "batch", CommOp, ("tp",))
        seconds, items = work.time_s + sums.time_s, layout.plan.items * layout.dp
        flops = 2 * items * self.model.hidden**2 * self.model.layers
        parts, energy = {{"work": work.time_s, "tp": sums.time_s}}, work.energy_j + sums.energy_j
        return Timeline(seconds, parts, energy, items, flops, {{"items_per_s": items / seconds}})

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Everything once a batch."""
        return {{"batch": jnp.ones_like(self.model.layers)}}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, of which a layer stays near where the rest is offloaded, and two layers of items."""
        weights = self.precision.bytes_of("weights") * self.model.hidden**2 * self.model.layers / layout.plan.tp
        items = 2 * self.precision.bytes_of("activations") * layout.plan.items * self.model.hidden
        return {{"weights": (weights, weights / self.model.layers), "items": (items, items)}}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas, whole columns."""
        tp = layout.plan.tp
        return {{"devices": indivisible(layout.devices, tp), "columns": indivisible(self.model.hidden, tp)}}

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """In numbers."""
        tp, hidden = float(layout.plan.tp), float(self.model.hidden)
        return f"plan.tp = {{tp:g}} does not divide model.hidden = {{hidden:g}}" if rule == "columns" else None
'''

WORKLOAD_FILES = {
    "workload": """# {title}: what it does, in one line
_target_: {package}.{cls}
precision:
  _target_: codesign.model.workloads.Precision
""",
    "model": """# @package workload.model
# {title}: its sizes, in one line
_target_: {package}.{cls}Model
name: {name}
hidden: 4096
layers: 16
""",
    "plan": """# On one device, 64 items at once
_target_: {package}.{cls}Plan
items: 64
""",
    "space": """# Ranks and items; width of the links
_target_: codesign.study.design_space.DesignSpace
plan:
  tp: [1, 2, 4, 8]
  items: [16, 64, 256]
hardware:
  scale_up_bandwidth:
    path: cluster.network.scale_up.fabric.bandwidth_bytes_per_s
    low: 100.0e+9
    high: 900.0e+9
    grid: 3
""",
    "experiment": """# @package _global_
# {title} on eight H100: fewest dollars an item, a batch in a tenth of a second
defaults:
  - override /workload: {name}
  - override /model: {name}
  - override /plan: {name}
  - override /space: {name}
  - override /objective: cheapest_tokens
  - override /search: certified

name: {name}
cluster:
  device_count: 8
objective:
  limits:
    time_s: 0.1
""",
}


# Texts of skeletons: each a small component that is right as it stands.


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
        """Link of any group: all are alike."""
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
        """Results as they come; None each second without one."""
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


WITHOUT_CODE = ("accelerator", "model", "experiment")
KINDS = (*CLASSES, *WITHOUT_CODE)
ALSO = {"workload": ("Model", "Plan")}  # further classes of a kind: names that begin with that of the component


def new(kind: str, name: str, package: str | None = None, root: Path | str = ".") -> list[Path]:
    """Write a skeleton of one component, into a package that is made where it is not there yet.

    Args:
        kind: one of `KINDS`.
        name: of the option, such as `hyperx`: lower case, digits, underscores.
        package: that it belongs to; `codesign_<name>` by default.
        root: folder in which the package's project lies.

    Returns:
        The files, what to edit first.

    Raises:
        ConfigError: no such kind, no name, a name of ours, or a file that exists.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind {kind!r} does not exist{suggestion(kind, KINDS)}")
    package = package or f"codesign_{name}"
    for word in (name, package):
        _check_name(word)
    _refuse_shipped(GROUPS.get(kind, kind), name)
    project = Path(root) / package
    made, words = _files(kind, name, package), project / package / "__init__.py"
    for place in made:
        if (project / place).exists():
            raise ConfigError(f"{str(project / place)!r} exists already: choose another name, or edit that file")
    begun = words.read_text(encoding="utf-8") if words.is_file() else f'"""Components of {package}."""\n\n'
    if kind in CLASSES:
        every = [_class(name) + more for more in ("", *ALSO.get(kind, ()))]
        line = "".join(f"from .{name} import {one} as {one}\n" for one in every)
        made[f"{package}/__init__.py"] = begun if line in begun else begun + line
    elif not words.is_file():
        made[f"{package}/__init__.py"] = begun
    if not (project / "pyproject.toml").exists():
        made["pyproject.toml"] = PYPROJECT.format(package=package, project=package.replace("_", "-"))
    write_files({project / place: text for place, text in made.items()})
    return [project / place for place in made]


def new_file(kind: str, name: str, conf: Path | str) -> Path:
    """Write one file into a folder of own files (`--conf`), which is made where it is not there yet.

    Raises:
        ConfigError: a kind that needs code, no name, a name of ours, or a file that exists.
    """
    if kind not in WITHOUT_CODE:
        needs = "needs a package of its own: leave out --conf" if kind in CLASSES else "does not exist"
        raise ConfigError(f"kind {kind!r} {needs}{suggestion(kind, WITHOUT_CODE) if kind not in CLASSES else ''}")
    _check_name(name)
    _refuse_shipped(kind, name)
    path = Path(conf) / kind / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{str(path)!r} exists already: choose another name, or edit that file")
    write_files({path: next(iter(_files(kind, name, "").values()))})
    return path


def told_of_file(kind: str, name: str, path: Path, conf: str) -> str:
    """Message on what was written and what to do next, for a file."""
    then = "optimize" if kind == "experiment" else "evaluate"
    return f"wrote {path}\nnext: edit it, then codesign {then} --conf {shlex.quote(conf)} {kind}={name}"


def told(kind: str, name: str, files: list[Path]) -> str:
    """Message on what was written and what to do next, for a package."""
    project = next(folder for folder in files[0].parents if (folder / "pyproject.toml").is_file())
    then = "optimize" if kind in ("search", "runner") else "evaluate"
    kind = (
        "experiment" if kind == "workload" else GROUPS.get(kind, kind)
    )  # model, plan and space of a family go with it
    lines = [f"wrote {path}" for path in files]
    return "\n".join([*lines, f"next: pip install -e {project} && codesign {then} {kind}={name}"])


def _check_name(word: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word) or keyword.iskeyword(word):
        raise ConfigError(f"name {word!r} must be lower-case letters, digits and underscores, a letter first")


def _refuse_shipped(group: str, name: str) -> None:
    """A second file of a shipped name would be refused as soon as it is named."""
    if (conf_dir() / group / f"{name}.yaml").is_file():
        raise ConfigError(f"{group}={name} is a file of ours: choose another name (yours may inherit from it)")


def _files(kind: str, name: str, package: str) -> dict[str, str]:
    """Place below the project -> text; what to edit first comes first."""
    title = name.replace("_", " ")
    given = {"name": name, "package": package, "cls": _class(name), "title": title}
    conf = f"{package}/conf/{GROUPS.get(kind, kind)}/{name}.yaml"
    if kind == "experiment":
        return {conf: EXPERIMENT.format(**given)}
    result = {f"{package}/{name}.py": CLASSES[kind].format(**given)} if kind in CLASSES else {}
    if kind == "workload":
        return result | {f"{package}/conf/{k}/{name}.yaml": text.format(**given) for k, text in WORKLOAD_FILES.items()}
    return result | {conf: FILES[kind].format(**given)}


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
