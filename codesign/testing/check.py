"""Contract checks of a component: what it breaks, a line each."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from .. import executors as distributing
from .. import search
from ..config.plugins import plugin_classes
from ..core.errors import ConfigError, suggestion
from ..core.fields import Module, quantity, replace, static
from ..core.jax_typed import arrays, asarray, ones_like
from ..model import hardware, workloads
from ..model.hardware import Work
from ..model.metrics import evaluate
from ..model.networks import collectives, fabrics
from ..model.scenario import Cluster, Scenario
from ..model.workloads import AbstractWorkload, CommOp, ComputeOp, Layout, Op, Plan, Precision
from ..model.workloads.lowering import indivisible
from ..model.workloads.schedule import Priced, Timeline, total
from ..search import AbstractSearch, Problem, Trace
from ..study.design_space import Continuous, DesignSpace
from ..study.objective import Objective
from . import contracts
from .contracts import ContractViolation, accelerator, cluster, must

# Contract of every search, on one small problem: designs of the space, a bound that nothing passes, repeatability.


# The smallest workload that has everything a search looks at: one matrix product, cut over ranks, and one sum.
#
# Traced and compiled in a tenth of the time of a transformer, so that every search can be run on every problem.


BYTES = 2.0  # of an element


class Square(Module):
    """`layers` square matrices of `hidden` rows."""

    hidden: Float[Array, "*b"] = quantity(low=1.0)
    layers: Float[Array, "*b"] = quantity(low=1.0)
    name: str = static(default="square")


class Products(AbstractWorkload):
    """`plan.micro_batch` sequences of `tokens` rows pass every matrix, whose columns lie on `plan.tp` ranks."""

    model: Square
    tokens: Float[Array, "*b"] = quantity(low=1.0)
    precision: Precision = Precision()

    def number_format(self) -> str:
        """Number format of the matrix products."""
        return "bf16"

    def rows(self, layout: Layout) -> Array:
        """Rows of one matrix product."""
        return layout.plan.micro_batch * self.tokens

    def weights(self, layout: Layout) -> Array:
        """Bytes of one matrix on one device."""
        return BYTES * self.model.hidden**2 / layout.plan.tp

    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """A product and the sum of its parts."""
        rows, width = self.rows(layout), self.model.hidden
        flops = 2 * rows * width * width / layout.plan.tp
        work = Work(flops, self.weights(layout) + BYTES * rows * width, rows, width, width / layout.plan.tp)
        return (
            ComputeOp("product", "gemm", "bf16", "forward", work, self.model.layers),
            CommOp("sum", "all_reduce", "tp", "forward", BYTES * rows * width, self.model.layers),
        )

    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """One after the other."""
        product, added = total(priced, "forward", ComputeOp), total(priced, "forward", CommOp)
        rows = self.rows(layout) * layout.dp
        flops = 2 * rows * self.model.hidden**2 * self.model.layers
        energy = product.energy_j + added.energy_j
        parts = {"compute": product.time_s, "tp": added.time_s}
        return Timeline(product.time_s + added.time_s, parts, energy, rows, flops, {})

    def repeats(self, layout: Layout) -> dict[str, Array]:
        """One run of the forward phase."""
        return {"forward": ones_like(layout.plan.tp)}

    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Weights, and the rows of one product."""
        held = self.weights(layout) * self.model.layers
        rows = BYTES * self.rows(layout) * self.model.hidden
        return {"weights": (held, self.weights(layout)), "working": (rows, rows)}

    def violations(self, layout: Layout) -> dict[str, Array]:
        """Whole replicas."""
        return {"devices": indivisible(layout.devices, layout.plan.tp)}

    @classmethod
    def example(cls) -> "Products":
        """Eighty matrices of half a gigabyte."""
        return cls(Square(*arrays(16384.0, 80.0)), *arrays(256.0))


def products() -> Scenario:
    """43 GB of weights, one switched network, 16 devices."""
    device = cluster(16.0)
    lean = replace(accelerator(), {"hbm.usd_per_byte": 100e-9})  # memory costs enough to be weighed
    one = Cluster(lean, device.host, {"scale_up": device.network["scale_up"]}, asarray(16.0), levels=("scale_up",))
    return Scenario(one, Products.example(), Plan(tp=asarray(2.0), micro_batch=asarray(4.0)))


UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
ROUNDING = 1e-6


@functools.cache
def small_problem() -> Problem:
    """Six plans and one bandwidth, within a budget."""
    space = DesignSpace({"tp": [1, 2, 4], "micro_batch": [1, 4]}, {"up": Continuous(UP, 100e9, 900e9, grid=3)})
    return Problem(products(), space, Objective("time_s", limits={"capex_usd": 8e5}))


class SearchOutcome:
    """A search and what it leaves; None where it refuses this problem, as some ask for one of their own."""

    def __init__(self, search: AbstractSearch):
        self.search, self.trace = search, _run(search)

    @classmethod
    def of(cls, kind: type[AbstractSearch]) -> "SearchOutcome":
        """The example of a class of searches, run."""
        return cls(kind.example(small_problem()))


def _run(search: AbstractSearch) -> Trace | None:
    problem = small_problem()
    try:
        search.refuse(problem)
        trace: Any = search.run(problem, 0)  # of somebody else's code
        must(isinstance(trace, Trace), f"run() returns a {type(trace).__name__}, not a Trace")
        return trace
    except ConfigError as refused:
        must("\n" not in str(refused), "a refusal is more than one line")
        return None


def leaves_designs_of_the_space(result: SearchOutcome) -> None:
    """Check the designs of a search: complete columns, listed plans, hardware inside its box, a claim of one line."""
    trace, space = result.trace, small_problem().space
    if trace is None:
        return
    must(len(trace.method) > 0, "run() leaves no design")
    must({len(column) for column in trace.points.values()} == {len(trace.method)}, "points and method differ in length")
    if trace.method == ["single"]:  # nothing was to vary
        return
    must(set(trace.points) >= {*space.plan, *space.hardware}, "points lack variables of the space")
    for name, listed in space.lists.items():
        must(np.isin(trace.points[name], listed), f"points have a {name} that the space does not list")
    for name, variable in space.hardware.items():
        column = trace.points[name]
        inside = (column >= variable.low * (1 - 1e-9)) & (column <= variable.high * (1 + 1e-9))
        must(inside, f"points have a {name} outside its range")
    must(trace.claim and "\n" not in trace.claim, "the claim is not one line")


def respects_its_bound(result: SearchOutcome) -> None:
    """Its designs, priced by the plain model, are no better than what it proves."""
    trace, problem = result.trace, small_problem()
    proof = trace.certificate if trace else None
    if trace is None or proof is None or proof.bound is None or proof.goal != problem.objective.goal:
        return
    for at in range(min(len(trace.method), 4)):
        point = {name: float(column[at]) for name, column in trace.points.items()}
        metrics = evaluate(problem.space.place(problem.scenario, point))
        if float(problem.objective.excess(metrics)) <= 0:
            must(metrics.time_s >= proof.bound * (1 - ROUNDING), "a design of its own is better than its bound")


def leaves_the_same_for_the_same_seed(result: SearchOutcome) -> None:
    """Every random number comes from the seed."""
    one = result.trace
    again = _run(result.search) if one is not None else None
    if one is None or again is None:
        return
    must(one.method == again.method, "the same seed leaves other designs")
    for name, column in one.points.items():
        must(np.array_equal(column, again.points[name]), f"the same seed leaves another {name}")


PROMISES = (leaves_designs_of_the_space, respects_its_bound, leaves_the_same_for_the_same_seed)


# Families of components: the base of each, where its members stand, and what each member promises.


Promise = Callable[[Any], None]


def _example(cls: Any) -> Any:
    return cls.example()


@dataclass(frozen=True)
class ComponentFamily:
    """base: class of its members; menu: package that lists those of this package; promises: of an example;
    example: class -> what these are asked of."""

    base: type
    menu: ModuleType
    promises: Sequence[Promise]
    example: Callable[[Any], Any] = _example


def _of_collective(promise: Callable[..., None]) -> Promise:
    def check(algorithm: collectives.AbstractCollective) -> None:
        promise(algorithm, type(algorithm).operation, 0)

    check.__name__ = promise.__name__
    return check


def _log_convex(fabric: fabrics.AbstractFabric) -> None:
    for seed, group in enumerate(contracts.GROUPS[::3]):
        contracts.log_convex_in_every_continuous_leaf(type(fabric), group, seed)


FAMILIES = {
    "fabric": ComponentFamily(fabrics.AbstractFabric, fabrics, (*contracts.FABRIC_PROMISES, _log_convex)),
    "collective": ComponentFamily(
        collectives.AbstractCollective, collectives, [_of_collective(each) for each in contracts.COLLECTIVE_PROMISES]
    ),
    "kernel": ComponentFamily(hardware.AbstractKernel, hardware, contracts.KERNEL_PROMISES),
    "memory": ComponentFamily(hardware.AbstractMemory, hardware, contracts.MEMORY_PROMISES),
    "workload": ComponentFamily(workloads.AbstractWorkload, workloads, contracts.WORKLOAD_PROMISES),
    "runner": ComponentFamily(distributing.AbstractRunner, distributing, contracts.RUNNER_PROMISES),
    "search": ComponentFamily(search.AbstractSearch, search, PROMISES, SearchOutcome.of),
}


def members(name: str) -> dict[str, type]:
    """Concrete classes of a family by name, those of plug-ins by `package.Class`.

    Raises:
        ConfigError: no such family; a plug-in that is not whole.
    """
    if name not in FAMILIES:
        raise ConfigError(f"family {name!r} does not exist{suggestion(name, FAMILIES)}")
    family = FAMILIES[name]
    classes = {**vars(family.menu), **plugin_classes()}
    return {
        key: cls
        for key, cls in classes.items()
        if inspect.isclass(cls) and issubclass(cls, family.base) and not inspect.isabstract(cls)
    }


def family_of(cls: type) -> str | None:
    """The family that a class belongs to; None where it is a part of something else."""
    return next((name for name, family in FAMILIES.items() if issubclass(cls, family.base)), None)


def broken(cls: type) -> list[str]:
    """Lines on what the example of a class does not keep; none where it keeps everything or has no contract."""
    name = family_of(cls)
    return list(_lines(cls, name)) if name else []


def chosen(names: Sequence[str] = ()) -> dict[str, type]:
    """Classes by name, all those of plug-ins where none is named; of a plug-in `package.Class` or `Class`.

    Raises:
        ConfigError: no such class, with a suggestion; a plug-in that is not whole.
    """
    every = {name: cls for family in FAMILIES for name, cls in members(family).items()}
    if not names:
        return {name: cls for name, cls in every.items() if "." in name}
    by_name = every | {name.rpartition(".")[2]: cls for name, cls in every.items()}
    for name in names:
        if name not in by_name:
            raise ConfigError(f"component {name!r} does not exist{suggestion(name, by_name)}")
    return {name: by_name[name] for name in names}


def faults_of_plugins() -> Iterator[str]:
    """Yield what the components of all plug-ins break of their contracts, a line each."""
    for cls in chosen().values():
        yield from broken(cls)


def _lines(cls: type, family: str) -> Iterator[str]:
    try:
        example = FAMILIES[family].example(cls)
    except Exception as error:
        yield f"{cls.__name__}: example() {_said(error)}"
        return
    for promise in FAMILIES[family].promises:
        try:
            promise(example)
        except ContractViolation as error:
            yield f"{cls.__name__}: {error}"
        except Exception as error:
            yield f"{cls.__name__}: {promise.__name__.strip('_').replace('_', ' ')}: {_said(error)}"


def _said(error: Exception) -> str:
    """An error of somebody's code in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"fails with {type(error).__name__}: {lines[0] if lines else 'no reason given'}"
