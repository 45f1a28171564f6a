"""`search=amortised`: an instant answer from a network that has seen many studies of its family.

    guess   a small network turns workload, budgets and prices into relaxed degrees, likely categories and hardware
    round   every plan of nearby degrees is priced at that hardware, the best of them are solved (`ledger`)
    polish  their neighbours in one or two fields, until no plan of the neighbourhood is better

No proof comes with the answer; what comes is the regret measured on studies the network was not trained on. As a warm
start (`proof`) it hands its design to the certified search, which then only has to prove it.
"""

import copy
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ConfigError
from ..fields import get_path
from ..scenario import Scenario
from ..space import DesignSpace
from .base import AbstractSearch, Problem, Progress, Report, Trace, silent
from .certified import Certified, Wanted
from .closing import Closing
from .convexity import check
from .ledger import REFERENCE_SHARPNESS, Ledger, Programme
from .oracle import Oracle, designs_of, rows_of

DEGREES = ("tp", "pp", "cp", "ep", "virtual_stages", "micro_batch", "row_shards", "column_shards")
"""Fields of a plan that are relaxed to real numbers, in the logarithm; of the others each value is a category."""

FIRST = 512  # plans that a table of rules is compiled for, and eight times as many
NEAREST, MOST = 3, 24  # values of a degree that are tried, at first and where nothing was feasible
SOLVED = 48  # plans solved side by side
SCATTERED = 3000  # plans anywhere, of which a third or so are legal
PRICES = (0.5, 2.0, 10.0)  # of a unit of log-violation, by which plans are chosen
FOLDER = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Shape:
    """What a network's outputs mean: its degrees and categories with their values, and the hardware variables."""

    degrees: dict[str, tuple[float, ...]]
    categories: dict[str, tuple[float, ...]]
    hardware: tuple[str, ...]

    @classmethod
    def of(cls, space: DesignSpace) -> "Shape":
        """Of a space."""
        lists = {name: tuple(sorted(map(_level, values))) for name, values in space.plan.items()}
        degrees = {name: values for name, values in lists.items() if name in DEGREES}
        return cls(degrees, {n: v for n, v in lists.items() if n not in degrees}, space.names)

    @property
    def outputs(self) -> int:
        """Width of the last layer."""
        return len(self.degrees) + len(self.hardware) + sum(map(len, self.categories.values()))

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the plan, in the order of tables."""
        return (*self.degrees, *self.categories)

    def split(self, outputs: Any) -> tuple[Any, dict[str, Any], Any]:
        """Outputs -> ([..., degrees] logs, category -> logits, [..., hardware] coordinates)."""
        n, m = len(self.degrees), len(self.hardware)
        low = jnp.log(jnp.array([values[0] for values in self.degrees.values()]))
        high = jnp.log(jnp.array([values[-1] for values in self.degrees.values()]))
        unit = jnp.clip(1.1 * jax.nn.sigmoid(outputs[..., : n + m]) - 0.05, 0.0, 1.0)
        logits, first = {}, n + m
        for name, values in self.categories.items():
            logits[name] = outputs[..., first : first + len(values)]
            first += len(values)
        return low + (high - low) * unit[..., :n], logits, unit[..., n:]


def _level(value: Any) -> float:
    from ..workloads.plan import recompute_level

    return float(recompute_level(value))


@dataclass(frozen=True)
class Guesser:
    """A trained network with what it was trained on.

    inputs: paths of the scenario and names of limits whose logs are its features; scale: their mean and spread; facts:
    seed, recipe and measured regret.
    """

    family: str
    shape: Shape
    inputs: tuple[str, ...]
    limits: tuple[str, ...]
    scale: Float[np.ndarray, "2 features"]
    parameters: Any
    facts: dict[str, Any]

    def features(self, problem: Problem) -> Float[np.ndarray, " features"]:
        """Logs of the inputs, scaled."""
        values = [float(get_path(problem.scenario, path)) for path in self.inputs]
        values += [float(problem.objective.limits[name]) for name in self.limits]
        return (np.log(values) - self.scale[0]) / self.scale[1]

    def guess(self, problem: Problem) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """(logs of degrees, category -> logits, coordinates of the hardware)."""
        from .amortised_network import Network  # Flax takes a second to import: only for those who ask

        outputs = Network(self.shape.outputs).apply(self.parameters, jnp.asarray(self.features(problem)))
        degrees, logits, u = self.shape.split(outputs)
        return np.asarray(degrees), {name: np.asarray(v) for name, v in logits.items()}, np.asarray(u, dtype=float)

    def misfit(self, problem: Problem) -> str:
        """Why the network says nothing about a study; empty where it does."""
        if Shape.of(problem.space) != self.shape:
            return "its plan fields, their values or hardware variables differ"
        if tuple(sorted(problem.objective.limits)) != self.limits or problem.objective.goal != self.facts["goal"]:
            return f"its goal or limits differ ({self.facts['goal']} under {', '.join(self.limits)})"
        for path in self.inputs:
            try:
                get_path(problem.scenario, path)
            except ConfigError:
                return f"it has no {path}"
        return ""

    def save(self, path: Path) -> None:
        """One compressed file."""
        leaves = {f"leaf.{name}": leaf for name, leaf in flat(self.parameters)}
        told = {
            "family": self.family, "degrees": self.shape.degrees, "categories": self.shape.categories,
            "hardware": self.shape.hardware, "inputs": self.inputs, "limits": self.limits, "facts": self.facts,
        }  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, told=np.array(json.dumps(told)), scale=self.scale, **leaves)

    @classmethod
    def load(cls, path: Path) -> "Guesser":
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as found:
            told = json.loads(str(found["told"]))
            tree: dict[str, Any] = {}
            for name in found.files:
                if name.startswith("leaf."):
                    _put(tree, name.removeprefix("leaf.").split("/"), found[name].astype(np.float32))
            lists = [{k: tuple(v) for k, v in told[part].items()} for part in ("degrees", "categories")]
            shape = Shape(lists[0], lists[1], tuple(told["hardware"]))
            return cls(
                told["family"], shape, tuple(told["inputs"]), tuple(told["limits"]), found["scale"], tree, told["facts"]
            )


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Names and values of a tree of mappings."""
    for key, value in tree.items():
        here = f"{path}/{key}" if path else key
        if hasattr(value, "items"):
            yield from flat(value, here)
        else:
            yield here, np.asarray(value, dtype=np.float16)


def _put(tree: dict[str, Any], keys: list[str], value: np.ndarray) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def shipped() -> list[Guesser]:
    """The networks that come with the package."""
    return [Guesser.load(path) for path in sorted(FOLDER.glob("*.npz"))]


def bare_oracle(problem: Problem, block: int = 128) -> Oracle:
    """An oracle that lists no plans: they are given later, by `with_plans`; compiles once for all of them."""
    fields = Shape.of(problem.space).fields
    oracle = Oracle(
        dataclasses.replace(problem, space=DesignSpace({}, problem.space.hardware)), rows_of(problem), block
    )
    oracle.problem = problem
    oracle.plans = {name: np.zeros(1) for name in fields}
    return oracle


def legality(problem: Problem, fields: tuple[str, ...]) -> Callable[..., Any]:
    """(scenario, table of plans) -> which break no rule; compiled once for studies of one structure."""

    def one(scenario: Scenario, plan: Any) -> Any:
        placed = problem.space.place(scenario, dict(zip(fields, plan, strict=True)))
        broken = [jnp.asarray(value) for value in placed.workload.violations(placed.layout).values()]
        return jnp.max(jnp.stack([*broken, jnp.asarray(0.0)])) <= 0

    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


def with_plans(oracle: Oracle, problem: Problem, table: Float[np.ndarray, "plans fields"]) -> Oracle:
    """The same compiled oracle over these plans of a problem of the same structure (illegal ones break a rule)."""
    other = copy.copy(oracle)
    other.problem, other.evaluated = problem, 0
    other.plans = {name: table[:, i] for i, name in enumerate(oracle.plans)}
    other._table = np.ascontiguousarray(table)
    return other


class Instant:
    """What answers to studies of one structure share: the compiled model and rules, for any plans."""

    def __init__(self, problem: Problem, shape: "Shape"):
        self.oracle = bare_oracle(problem)
        self.legal = legality(problem, shape.fields)
        self.lists = (*shape.degrees.values(), *shape.categories.values())
        self.first = np.array([[values[0] for values in self.lists]])
        self.kept(problem, np.repeat(self.first, FIRST, axis=0))
        self.kept(problem, np.repeat(self.first, 8 * FIRST, axis=0))
        middle = np.full((1, len(problem.space.names)), 0.5)
        with_plans(self.oracle, problem, self.first).tangents(np.zeros(1, dtype=int), middle, 50.0)

    def anywhere(self, count: int) -> np.ndarray:
        """Random plans, the same for every study."""
        rng = np.random.default_rng(0)
        return np.stack([rng.choice(values, count) for values in self.lists], axis=-1)

    def kept(self, problem: Problem, table: np.ndarray) -> np.ndarray:
        """The plans that break no rule; asked for in few different sizes, each of which compiles once."""
        size = FIRST * 8 ** max(math.ceil(math.log(max(len(table), 1) / FIRST, 8)), 0)
        index = np.minimum(np.arange(size), len(table) - 1)
        return table[np.asarray(self.legal(problem.scenario, table[index]))[: len(table)]]


class Answer:
    """The design that a guess leads to: `run`, then `row`, `u` and `upper`."""

    def __init__(
        self, guesser: Guesser, instant: "Instant", problem: Problem, allowed: dict[str, float] | None = None,
        gap: float = 2e-3,
    ):  # fmt: skip
        self.guesser, self.instant, self.problem, self.gap = guesser, instant, problem, gap
        self.allowed = allowed or {}  # where the oracle was compiled for other limits
        self.upper, self.row, self.evaluated = math.inf, np.zeros(0), 0
        self.u = np.full(len(problem.space.names), 0.5)
        self.prices = np.zeros(0)  # of the constraints, by the best plan so far

    def run(self, rounds: int = 4) -> "Answer":
        """Guess, round, polish."""
        degrees, _, self.u = self.guesser.guess(self.problem)
        nearby = self._rounded(degrees, NEAREST)
        anywhere = self.instant.anywhere(SCATTERED)  # in case the guess is far off
        table = self.instant.kept(self.problem, np.unique(np.concatenate([nearby, anywhere]), axis=0))
        self._solve(table)
        if not np.isfinite(self.upper):  # nothing feasible near the guess: any value of every degree
            table = self.instant.kept(self.problem, self._rounded(degrees, MOST))
            self._solve(table)
        for _ in range(rounds if np.isfinite(self.upper) else 0):
            before = self.upper
            near = self.instant.kept(self.problem, self._near())
            self._solve(np.unique(np.concatenate([table, near]), axis=0))
            if self.upper > before - 0.5 * self.gap:
                break
        return self

    def _rounded(self, degrees: np.ndarray, nearest: int) -> np.ndarray:
        """Plans whose degrees are among the nearest values of each, with every category."""
        shape, lists = self.guesser.shape, []
        for log, values in zip(degrees, shape.degrees.values(), strict=True):
            order = np.argsort(np.abs(np.log(values) - log), kind="stable")[:nearest]
            lists.append([values[i] for i in sorted(order)])
        lists += [list(values) for values in shape.categories.values()]
        return np.array(list(itertools.product(*lists)))

    def _near(self) -> np.ndarray:
        """Plans that differ from the best in at most two fields."""
        lists = [*self.guesser.shape.degrees.values(), *self.guesser.shape.categories.values()]
        found = []
        for i, j in itertools.combinations(range(len(lists)), 2):
            for a, b in itertools.product(lists[i], lists[j]):
                found.append(self.row.copy())
                found[-1][i], found[-1][j] = a, b
        return np.unique(np.array(found), axis=0)

    def _solve(self, table: np.ndarray) -> None:
        """Price plans at the hardware at hand, solve the most promising, keep the best."""
        if len(table) == 0:
            return
        oracle = with_plans(self.instant.oracle, self.problem, table)
        programme = Programme(oracle, allowed=self.allowed)
        at = np.broadcast_to(self.u, (len(table), len(self.u)))
        exact, affine = programme.tangents(np.arange(len(table)), at, REFERENCE_SHARPNESS)
        chosen = self._chosen(exact)
        self.evaluated += len(table)
        if len(chosen) == 0:
            return
        ledger = Ledger(programme, self.gap)
        ledger.upper = self.upper
        ledger.keep(chosen, exact[chosen], affine[chosen])
        ledger.lower[:] = np.inf
        ledger.lower[chosen] = -np.inf
        self._note(ledger, chosen, exact[chosen])
        for _ in range(6):
            left = ledger.open()
            if len(left) == 0:
                break
            ledger.refine(left)
        self.evaluated += oracle.evaluated
        if ledger.plan >= 0:
            self.upper, self.row, self.u = ledger.upper, table[ledger.plan].copy(), ledger.u.copy()
            self.prices = ledger.weights.get(ledger.plan, self.prices)

    def _chosen(self, exact: np.ndarray) -> np.ndarray:
        """The plans that promise most at this hardware: by the goal with dear, cheap and dual prices of violations.

        The duals of the best plan so far also credit what a plan leaves unused: with the hardware moved, it pays.
        """
        legal = np.flatnonzero(np.isfinite(exact).all(axis=1))
        rows = exact[legal]
        over = np.maximum(rows[:, 1:], 0.0).sum(axis=1)
        ranks = [rows[:, 0] + price * over for price in PRICES]
        if len(self.prices):
            ranks.append(rows[:, 0] + np.maximum(rows[:, 1:], -3.0) @ self.prices[1:])
        each = SOLVED // len(ranks)
        return np.unique(np.concatenate([legal[np.argsort(rank, kind="stable")[:each]] for rank in ranks]))

    def _note(self, ledger: Ledger, chosen: np.ndarray, exact: np.ndarray) -> None:
        """The best of the plans as they are, without a solution."""
        holds = exact[:, 1:].max(axis=1, initial=-np.inf) <= 0.0
        values = np.where(holds, exact[:, 0], np.inf)
        best = int(np.argmin(values))
        if values[best] < ledger.upper:
            ledger.upper, ledger.plan, ledger.u = float(values[best]), int(chosen[best]), self.u.copy()


@dataclass(frozen=True)
class Amortised(AbstractSearch):
    """The instant answer of a network trained on studies of this family.

    Args:
        weights: file of the network; empty chooses one that comes with the package.
        proof: a certified search that starts from the answer and proves it; none gives the answer alone.
    """

    weights: str = ""
    proof: Certified | None = None

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Answer, and prove where that is asked for.

        Raises:
            ConfigError: no network fits the study.
        """
        guesser = self._fitting(problem)
        instant = Instant(problem, guesser.shape)  # compiles
        began = time.perf_counter()
        answer = Answer(guesser, instant, problem).run()
        seconds = time.perf_counter() - began
        report(Progress("amortised", answer.evaluated, answer.evaluated, math.exp(min(answer.upper, 700.0))))
        if self.proof is not None:
            return self._proven(problem, guesser, answer, seed, report, seconds)
        found = np.isfinite(answer.upper)
        row = answer.row if found else instant.first[0]
        points = designs_of(with_plans(instant.oracle, problem, row[None]), np.zeros(1, dtype=int), answer.u[None])
        claim = regret_text(guesser.facts) if found else "no feasible design found near the network's guess; no proof"
        certificate = {"amortised": {"family": guesser.family, **guesser.facts}}
        return Trace(
            points, ["amortised"], {"points": answer.evaluated}, {"amortised": seconds}, claim,
            {"convex": False, "reason": claim, **certificate},
        )  # fmt: skip

    def _fitting(self, problem: Problem) -> Guesser:
        if self.weights and not Path(self.weights).is_file():
            raise ConfigError(f"search.weights = {self.weights!r} is no file")
        known = [Guesser.load(Path(self.weights))] if self.weights else shipped()
        reasons = []
        for guesser in known:
            reason = guesser.misfit(problem)
            if not reason:
                return guesser
            reasons.append(f"{guesser.family}: {reason}")
        raise ConfigError(f"search=amortised has no network for this study ({'; '.join(reasons) or 'none is there'})")

    def _proven(
        self, problem: Problem, guesser: Guesser, answer: Answer, seed: int, report: Report, seconds: float
    ) -> Trace:
        """The certified search, started from the answer."""
        proof = self.proof
        assert proof is not None
        oracle = Oracle(problem, rows_of(problem), proof.block)
        wanted = Wanted(problem.objective.goal, 1.0 if problem.objective.minimise else -1.0)
        verdict = check(oracle, seed, proof.pairs)
        closing = Closing(Programme(oracle), proof.effort, seed, report)
        if np.isfinite(answer.upper):
            order = [guesser.shape.fields.index(name) for name in oracle.plans]
            same = np.flatnonzero((np.stack(list(oracle.plans.values()), axis=-1) == answer.row[order]).all(axis=1))
            if len(same):
                closing.ledger.evaluate(same[:1], answer.u[None], REFERENCE_SHARPNESS)
        trace = proof.traced(oracle, wanted, verdict, closing.run(), seed)
        trace.seconds["amortised"] = seconds
        return trace


def regret_text(facts: dict[str, Any]) -> str:
    """What was measured on studies held out."""
    measured = facts.get("regret")
    if not measured:
        return "instant answer; its regret was not measured"
    return (
        f"instant answer, no proof: on {measured['studies']} studies held out, {measured['within_1_percent']:.0%} were "
        f"within 1 % of the certified optimum (median {measured['median']:.2%}, worst {measured['worst']:.1%})"
    )
