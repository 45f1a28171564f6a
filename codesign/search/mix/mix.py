"""`search=mix`: one hardware for several workloads, each with a plan of its own, and how far from the optimum it is.

Every workload keeps its own goal and limits; they share the variables of `space.hardware` and the cluster. What is
minimised is a blend of their goals (`how`), absolute or relative to what each could have on hardware of its own.

    good tuple    `alternating`: plans exchanged one by one or all together, hardware solved for whole tuples
    own hardware  every workload alone, certified: what sharing costs, and a first bound
    bound         `pricing`: duals that lean the workloads towards common hardware, plans dropped, tuples bounded

Source: see docs/optimisation.md, section 6.
"""

import dataclasses
import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.errors import CodesignError, ConfigError
from ...core.fields import walk
from ...core.jax_typed import structure
from ...core.json_yaml import is_mapping
from ...executors import AbstractRunner
from ...uncertainty import Cases
from ..base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, proving, silent
from ..blend import Blend
from ..branch_and_bound.bounding import INTERRUPTED, Outcome, SearchEffort
from ..branch_and_bound.convexity import Verdict, check_convexity
from ..branch_and_bound.evidence import Recorder, evidence_of
from ..branch_and_bound.model_oracle import designs_of
from ..branch_and_bound.oracle import Programme
from ..certificate import LATE, Certificate, Convexity, GoalQuantity, Shared, certify, claim_of_mix, columns_of
from .alternating import Alternating, Member
from .mix_evidence import ALONE, evidence_of_mix, round_alone
from .pricing import Proof
from .workload_oracles import Oracles, Searches, WorkloadSearch, WorkloadWork, judged, oracles_of

# The workloads of a mix as the configuration names them, and what they must have in common.


@dataclass(frozen=True)
class MixEntry:
    """A workload of a mix.

    Args:
        overrides: what it changes of the study, such as `model=llama31_405b workload=serving`.
        weight: its share of the blend.
    """

    overrides: tuple[str, ...] = ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        """A positive weight, a list of overrides."""
        if isinstance(self.overrides, str) or not all(map(_is_override, self.overrides)):
            raise ConfigError(f"overrides = {self.overrides!r} must be a list of key=value or ~key")
        if not self.weight > 0:
            raise ConfigError(f"weight = {self.weight:g} must be positive")


def _is_override(text: object) -> bool:
    return isinstance(text, str) and ("=" in text or text.startswith("~"))


def entry_of(name: str, given: Any) -> MixEntry:
    """An entry from what the configuration gives for it.

    Raises:
        ConfigError: naming the entry and what is wrong.
    """
    if isinstance(given, MixEntry):
        return given
    fields = {f.name for f in dataclasses.fields(MixEntry)}
    if not is_mapping(given) or set(given) - fields:
        raise ConfigError(f"search.workloads.{name} = {given!r} must be a mapping with overrides and weight")
    try:
        overrides: dict[str, Any] = {"overrides": tuple(given.get("overrides", ()))}
        return MixEntry(**(given | overrides))
    except ConfigError as error:
        raise ConfigError(f"search.workloads.{name}.{error}") from error


def check_hardware(first: str, one: Problem, second: str, other: Problem) -> None:
    """Refuse problems whose hardware differs in more than the number of devices.

    Raises:
        ConfigError: naming the first difference.
    """

    def refuse(what: str) -> None:
        raise ConfigError(
            f"search.workloads: {what} of {second} differs from that of {first}, but a mix has one hardware"
        )

    for name in sorted({*one.space.hardware, *other.space.hardware}):
        if one.space.hardware.get(name) != other.space.hardware.get(name):
            refuse(f"space.hardware.{name}")
    if structure(one.scenario.cluster) != structure(other.scenario.cluster):
        refuse("the structure of the cluster (fabric, kernels, collectives)")
    values = [{path: float(value) for path, _, value in walk(p.scenario.cluster, "cluster")} for p in (one, other)]
    for path, value in values[0].items():
        if path != "cluster.device_count" and values[1].get(path) != value:
            refuse(path)


BLENDED = GoalQuantity("blend of goals")  # its value of a log


@dataclass(frozen=True)
class Mix(AbstractSearch):
    """One hardware for several workloads.

    Args:
        workloads: name -> `MixEntry`, or its fields as a mapping; none takes an entry of the defaults away. aggregate:
        `log_sum` (weighted geometric mean of the goals, which may be in different units), `sum` (weighted mean),
            `worst` or `cvar`.
        tail: share of the weight that cvar takes the mean of.
        relative: goals relative to each workload's own best on hardware of its own.
        cases: uncertain constants that all workloads share; each plan holds in every case.
        over_cases: blend of a workload's goal over the cases, `worst`, `cvar`, `sum` or `log_sum`.
        alone: also find each workload's best on hardware of its own (needed for `relative`).
        gap: relative distance from the optimum at which the search stops.
        seconds: limit of its time.
        batch_size: points in one call of the model.
        convexity_samples: pairs of points of the test of convexity, for each workload.
        problems: name -> its problem; the configuration fills this in from the overrides.
        runner: runs each workload's own searches apart from each other (what exchanges plans and chooses duals stays
            here); none: one after the other, here.
    """

    workloads: dict[str, MixEntry | dict[str, object] | None]
    aggregate: str = "log_sum"
    tail: float = 0.5
    relative: bool = False
    cases: Cases | None = None
    over_cases: str = "worst"
    alone: bool = True
    gap: float = 5e-3
    seconds: float = 300.0
    batch_size: int = 128
    convexity_samples: int = 512
    problems: dict[str, Problem] = field(default_factory=dict[str, Problem])
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Entries, a known blend, positive sizes."""
        made = {name: entry_of(name, given) for name, given in self.workloads.items() if given is not None}
        if not made:
            raise ConfigError("search.workloads is empty: name the workloads of the mix")
        object.__setattr__(self, "workloads", made)
        Blend(self.aggregate, np.ones(1), self.tail)
        Blend(self.over_cases, np.ones(1), self.tail)
        self.must_be_positive("gap", "seconds", "batch_size", "convexity_samples")

    @property
    def entries(self) -> dict[str, MixEntry]:
        """Name -> workload, in order."""
        return {name: entry_of(name, given) for name, given in self.workloads.items()}

    def bound(self, problems: dict[str, Problem]) -> "Mix":
        """With the problem of each workload.

        Raises:
            ConfigError: they have different hardware.
        """
        names = list(problems)
        for name in names[1:]:
            check_hardware(names[0], problems[names[0]], name, problems[name])
        return dataclasses.replace(self, problems=problems)

    def members(self, oracles: Oracles | None = None, seed: int = 0) -> list[Member]:
        """The workloads as programmes, in all cases where constants are uncertain; `seed` draws the cases."""
        result: list[Member] = []
        for name, (oracle, allowed) in (oracles or oracles_of(self.problems, self.batch_size)).items():
            rows = judged(oracle, self.cases, self.over_cases, self.tail, seed)
            result.append(Member(name, Programme(rows, allowed=allowed)))
        return result

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """The first workload's design, the certificate all of them; without problems of its own, of the one problem."""
        problems = self.problems or {next(iter(self.workloads)): problem}
        return _MixRun(self, problems, seed, report).trace()

    @classmethod
    def example(cls, problem: Problem) -> "Mix":
        """An example: a mix of one workload."""
        return cls({"one": {}}, gap=1e-2, convexity_samples=64, batch_size=64)


class _MixRun:
    """One run of a mix."""

    def __init__(self, mix: Mix, problems: dict[str, Problem], seed: int, report: Report):
        self.mix, self.problems, self.seed, self.report = mix, problems, seed, report
        self.oracles = oracles_of(problems, mix.batch_size)
        self.members = mix.members(self.oracles, seed)
        work = WorkloadWork(problems, mix.batch_size, mix.cases, mix.over_cases, mix.tail, seed)
        self.searches = Searches(self.members, seed, self.oracles, work, mix.runner)
        self.wanted = {name: p.wanted for name, p in problems.items()}
        self.history: list[tuple[float, float | None, float | None]] = []
        self.standalone: dict[str, Outcome] = {}
        self.proof: Proof | None = None
        self.stopped, self.offset = "", not mix.relative  # whether the blend has what goals are relative to

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    @property
    def standalone_bound(self) -> float:
        """Blended log of the bounds on hardware of their own."""
        if len(self.standalone) < len(self.members) or not self.offset:
            return -math.inf
        lowest = np.array([outcome.lower for outcome in self.standalone.values()])
        return float(self.search.blend.value(lowest)) if np.isfinite(lowest).all() else -math.inf

    @property
    def lower(self) -> float:
        """Bound on the blended log."""
        result = self.proof.lower if self.proof else -math.inf
        return min(max(result, self.standalone_bound), self.search.upper)

    def note(self, stage: str) -> None:
        """One line of history and progress."""
        upper, lower = self.search.upper, self.lower
        self.history.append((self.elapsed, BLENDED.value(upper), BLENDED.value(lower)))
        left = sum(self.proof.left) if self.proof else self.total
        goal, done = self.search.blend.words, self.total - left
        self.report(Progress(stage, done, self.total, math.exp(upper), math.expm1(upper - lower), goal))

    def trace(self) -> Trace:
        """All stages; an interrupt ends with what is known."""
        mix = self.mix
        verdict = self._warm()
        self.report = proving(self.report, verdict.convex)
        self.began = time.perf_counter()
        self.total = sum(member.count for member in self.members)
        weights, gap = np.array([mix.entries[name].weight for name in self.problems]), math.log1p(mix.gap)
        self.search = Alternating(self.members, Blend(mix.aggregate, weights, mix.tail), 0.2 * gap, self.seed)
        try:
            if mix.relative:
                self._alone()
                offset = np.array([self.standalone[m.name].upper for m in self.members])
                self.search.blend = Blend(mix.aggregate, weights, mix.tail, np.where(np.isfinite(offset), offset, 0.0))
                self.offset = True
            self.search.run()
            self.note("exchange")
            if mix.alone and not self.standalone:
                self._alone()
                self.search.run()
                self.note("exchange")
            if math.isfinite(self.search.upper) and not self._hopeless():
                self.proof = Proof(
                    self.searches, self.search.blend, self.search, gap, self.began + mix.seconds, self.note
                )
                self.proof.run()
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED
        except CodesignError as error:  # a runner lost its workers: what is known holds
            self.stopped = str(error)
        if not self.stopped and self.elapsed > mix.seconds:
            self.stopped = f"stopped at its time limit of {mix.seconds:g} s"
        return self._trace_of(verdict)

    def _warm(self) -> Verdict:
        """Compile, and test convexity of every workload: the first that fails, or the last."""
        verdict = Verdict()
        for member in self.members:
            verdict = check_convexity(member.programme.oracle, self.seed, self.mix.convexity_samples)
            if not verdict.convex:
                return dataclasses.replace(verdict, broken=f"{member.name}: {verdict.reason}")
        return verdict

    def _alone(self) -> None:
        """Each workload's best on hardware of its own; their bounds, blended, bound the mix."""
        gap = 0.5 * math.log1p(self.mix.gap)

        def search_of(k: int, share: float) -> WorkloadSearch:
            left = share * max(self.mix.seconds - self.elapsed, 1.0) / 2
            return WorkloadSearch(self.members[k].name, SearchEffort(gap=gap, seconds=left))

        for k, outcome in enumerate(self.searches.run(search_of)):
            self.standalone[self.members[k].name] = outcome
            designs = np.array(list(outcome.unless_interrupted().bounding.feasible), dtype=int)
            self.search.samples[k] = np.union1d(self.search.samples[k], designs)

    def _hopeless(self) -> list[str]:
        """Workloads that no plan on any hardware satisfies."""
        return [name for name, outcome in self.standalone.items() if outcome.lower == math.inf]

    def _trace_of(self, verdict: Verdict) -> Trace:
        search = self.search
        counts = {"plans": self.total, "points": sum(o.evaluated for o, _ in self.oracles.values())}
        counts |= {"open": sum(self.proof.left)} if self.proof else {}
        first = self.members[0]
        points = designs_of(self.oracles[first.name][0], search.plans[:1], search.u[None])
        certificate = self._certificate(verdict)
        tables = {"workloads": columns_of(certificate.workloads)} if certificate.workloads else {}
        arguments = counts, {"mix": self.elapsed}, claim_of_mix(certificate, self.total, self.mix.gap), certificate
        return Trace(points, ["mix"], *arguments, tables=tables, evidence=self._evidence(certificate))

    def _evidence(self, certificate: Certificate) -> Evidence | None:
        """Evidence of the bound, or of there being no feasible design."""
        if certificate.alone_infeasible:
            return self._impossible(certificate.alone_infeasible[0])
        if certificate.bound is None:
            return None
        standalone = [outcome.bounding for outcome in self.standalone.values()]
        alone = round_alone(standalone, self.search.blend) if len(standalone) == len(self.members) else None
        rounds = [*([alone] if alone else []), *(self.proof.rounds if self.proof else [])]
        claim = certificate.claimed()
        oracles = [oracle for oracle, _ in self.oracles.values()]
        integer_shares = self.proof.integer_shares if self.proof else None
        return evidence_of_mix(self.members, oracles, self.search.blend, rounds, integer_shares, self.lower, claim)

    def _impossible(self, name: str) -> Evidence | None:
        """Evidence that a workload has no feasible design, on whatever hardware."""
        bounding, wanted = self.standalone[name].bounding, self.wanted[name]
        assert isinstance(bounding.recorder, Recorder)
        rows, oracle = bounding.programme.rows, self.oracles[name][0]
        evidence = evidence_of(oracle, bounding.recorder, rows, bounding.table.leaf, bounding.lower, math.inf)
        if evidence is not None:
            none = certify(wanted, math.inf, math.inf, convex=True, closed=True, reason="")
            evidence.header.update(kind=ALONE, workload=name, claim=none.claimed(infeasible=True))
        return evidence

    def _certificate(self, verdict: Verdict) -> Certificate:
        search, result = self.search, math.isfinite(self.search.upper)
        closed = result and math.expm1(search.upper - self.lower) <= self.mix.gap * LATE
        hopeless = self._hopeless() if verdict.convex and not result else []
        relative = " relative to its own best" if self.mix.relative else ""
        return certify(
            GoalQuantity(f"{self.mix.aggregate} of {len(self.members)} goals{relative}"), search.upper, self.lower,
            convex=verdict.convex, closed=closed or bool(hopeless),
            reason=verdict.reason or ("" if closed else self.stopped),
            convexity=Convexity(verdict.pairs, {**verdict.worst}, verdict.unproven), history=tuple(self.history),
            workloads=tuple(self._each()) if result else (), alone_infeasible=tuple(hopeless),
            bound_of_own_hardware=BLENDED.value(self.standalone_bound),
        )  # fmt: skip

    def _each(self) -> list[Shared]:
        """Results of every workload on the common hardware, beside what it could have alone."""
        rows, search = list[Shared](), self.search
        goals = [m.tangents(search.plans[k : k + 1], search.u[None], 1e6)[0][0] for k, m in enumerate(self.members)]
        _, slopes = search.blend.tangent(np.array([[exact[0] for exact in goals]]))
        for k, member in enumerate(self.members):
            wanted, oracle = self.wanted[member.name], self.oracles[member.name][0]
            row = Shared(
                member.name, self.mix.entries[member.name].weight, wanted.name, wanted.value(goals[k][0]),
                dict(zip(member.programme.rows[1:], np.exp(goals[k][1:]).tolist(), strict=True)),
                oracle.point(int(search.plans[k]), search.u), float(slopes[0, k]),
            )  # fmt: skip
            standalone = self.standalone.get(member.name)
            if standalone is not None and math.isfinite(standalone.upper):
                row = dataclasses.replace(
                    row, own_best=wanted.value(standalone.upper), own_bound=wanted.value(standalone.lower),
                    costs=math.expm1(goals[k][0] - standalone.upper),
                    own_design=oracle.point(standalone.bounding.plan, standalone.bounding.u),
                )  # fmt: skip
            rows.append(row)
        return rows
