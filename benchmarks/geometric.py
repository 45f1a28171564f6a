"""Plans of the named instances as geometric programmes of CVXPY, read from the traced model: a second opinion.

    python benchmarks/geometric.py                      nine random plans of each instance, table
    python benchmarks/geometric.py 1t_energy --plans 3 --seed 1 --json

Of `codesign.search` the programmes use nothing but the problem: no tangents, no reading of maxima, no bounds. The first
opinion is the inner solve of the certified search on the same plan alone, and the elasticities it reports for every
limit that binds; CVXPY solves again with that limit moved by 0.1 % and by 1 % to both sides. At 1 % the optimum may
pass a kink: slopes are compared where CVXPY's own two, from either side, agree to 1e-3.
"""

import argparse
import itertools
import json
import math
import os
import time
import warnings
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads of the linear algebra only wait

import cvxpy as cp
import jax
import numpy as np
from posynomials import Posynomial, Quotient, Reader, added, posynomial
from search import INSTANCES, problem_of

from codesign import Problem, prepare_jax
from codesign.model.metrics import account
from codesign.search.amortised import with_plans
from codesign.search.branch_and_bound import Bounding, Oracle, Programme, polish, resources, rows_of

ATTEMPTS = (
    (1e-9, 0.99),
    (1e-9, 0.9),
    (1e-8, 0.8),
)  # tolerance and longest step of CVXPY's solver, until it says optimal
ACCURACY = 1e-7  # of the other opinion, in the log of the goal
BINDS, SMOOTH = 0.999, 1e-3  # share of a limit that is used; difference of slopes on both sides that is no kink


class Rows(NamedTuple):
    """A plan's programme: minimise the goal, every share at most 1, every variable between its bounds.

    shares: constraint -> (what scales with its limit, what does not), together at most 1; definitions: posynomials at
    most 1 that make variables out of maxima.
    """

    goal: Posynomial
    shares: dict[str, tuple[Posynomial, Posynomial]]
    definitions: list[Posynomial]
    bounds: np.ndarray


class Model:
    """The traced model of a problem, for any of its plans."""

    def __init__(self, problem: Problem):
        if not problem.objective.minimise:
            raise NotImplementedError("a goal that is maximised")
        names, self.fields = problem.space.names, tuple(problem.space.plan)
        hardware = [problem.space.hardware[name] for name in names]
        middle = [math.sqrt(variable.low * variable.high) for variable in hardware]
        self.extents = [(math.sqrt(v.low / v.high), math.sqrt(v.high / v.low)) for v in hardware]
        self.shares: tuple[str, ...] = ()

        def rows(plan: list[Any], values: list[Any]) -> list[Any]:
            placed = {name: m * value for name, m, value in zip(names, middle, values, strict=True)}
            point = dict(zip(self.fields, plan, strict=True)) | placed
            metrics = account(problem.space.place(problem.scenario, point)).metrics  # every operation as it is written
            shares = problem.objective.usages(metrics)
            self.shares = tuple(shares)
            return [problem.objective.value(metrics, problem.objective.goal), *shares.values()]

        self.traced = jax.make_jaxpr(rows)([0.0] * len(self.fields), [1.0] * len(names))

    def rows(self, plan: dict[str, float]) -> Rows:
        """The programme of one plan.

        Raises:
            NotImplementedError: the goal or a constraint is no posynomial of the hardware.
        """
        reader = Reader(list(self.extents))
        inputs = [np.float64(plan[name]) for name in self.fields]
        inputs += [reader.variable(i) for i in range(len(self.extents))]
        goal, *shares = map(_parts, reader.run(self.traced.jaxpr, self.traced.consts, inputs))
        if goal[1].terms:
            raise NotImplementedError("a goal that is a quotient")
        used, definitions = reader.reached([goal[0], *itertools.chain(*shares)])
        number = {variable: index for index, variable in enumerate(used)}
        shares = [(moved.renamed(number), fixed.renamed(number)) for moved, fixed in shares]
        definitions = [row.renamed(number) for row in definitions]
        extents = np.array(reader.extents)[used]
        return Rows(goal[0].renamed(number), dict(zip(self.shares, shares, strict=True)), definitions, extents)


def _parts(out: Any) -> tuple[Posynomial, Posynomial]:
    """An output in posynomials; a quotient by a difference is at most 1 where both parts together are."""
    value = np.asarray(out, dtype=object)[()]
    parts = value.parts() if isinstance(value, Quotient) else (posynomial(value), Posynomial({}))
    if not all(math.isfinite(part.middle) and part.positive for part in parts):
        raise NotImplementedError("a goal or constraint that is no posynomial")
    return parts


def solved(rows: Rows, moves: dict[str, float] | None = None) -> float:
    """Log of the least goal; inf where nothing keeps all constraints.

    Args:
        rows: the programme.
        moves: constraint -> factor by which its limit is moved.
    """
    moves = moves or {}
    shares = [added(part.scaled(1 / moves.get(name, 1.0)), fixed) for name, (part, fixed) in rows.shares.items()]
    least = [row for row in (*map(posynomial, shares), *rows.definitions) if row.terms]
    if any(row.terms.get((), 0.0) > 1 for row in least):
        return math.inf
    scale = rows.goal.middle
    z = cp.Variable(len(rows.bounds), pos=True)
    terms = [term for row in (rows.goal.scaled(1 / scale), *least) for term in row.terms.items()]
    powers = np.zeros((len(terms), len(rows.bounds)))
    for at, (monomial, _) in enumerate(terms):
        for variable, power in monomial:
            powers[at, variable] = power
    monomials = cp.multiply(np.array([weight for _, weight in terms]), cp.gmatmul(powers, z))
    ends = np.cumsum([len(row.terms) for row in (rows.goal, *least)])
    limits = [cp.sum(monomials[a:b]) <= 1 for a, b in itertools.pairwise(ends)]
    limits += [z >= rows.bounds[:, 0], z <= rows.bounds[:, 1]]
    programme = cp.Problem(cp.Minimize(cp.sum(monomials[: ends[0]])), limits)
    for tolerance, step in ATTEMPTS:
        options = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance) | {"max_step_fraction": step}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a solution that may be inaccurate: it is not taken
            programme.solve(gp=True, solver=cp.CLARABEL, **options)
        if programme.status == "infeasible":
            return math.inf
        if programme.status == "optimal":
            return math.log(programme.value * scale)
    raise ArithmeticError(f"CVXPY says {programme.status}")


def inner(oracle: Oracle, plan: int, constraints: tuple[str, ...] | None = None) -> Bounding:
    """One plan alone, solved as the certified search does, under all constraints or these."""
    table = np.array([[column[plan] for column in oracle.plans.values()]])
    alone = with_plans(oracle, oracle.problem, table)
    bounding = Bounding(Programme(alone, constraints=constraints), ACCURACY)
    first = np.zeros(1, dtype=int)
    bounding.learn(first, np.full((1, bounding.width), 0.5), 50.0)
    polish(bounding, 0, ACCURACY)
    return bounding


def slopes(rows: Rows, bounding: Bounding, middle: float) -> list[dict[str, Any]]:
    """For each limit that binds: how far its reported elasticities are from CVXPY's at limits moved to both sides."""
    result = []
    for limit in resources(bounding, ACCURACY):
        if limit.used < BINDS:
            continue
        moved = {s: (solved(rows, {limit.name: math.exp(s)}) - middle) / s for s in (-0.001, 0.001, -0.01, 0.01)}
        near = max(abs(limit.fewer - moved[-0.001]), abs(limit.more - moved[0.001]))
        far = abs(limit.fewer + limit.more - moved[-0.01] - moved[0.01]) / 2
        result.append({"near": near, "far": far if abs(moved[0.01] - moved[-0.01]) < SMOOTH else None})
    return result


def compare(name: str, count: int, seed: int) -> dict[str, Any]:
    """Random plans of one instance by both."""
    problem = problem_of(name)
    oracle, model = Oracle(problem, rows_of(problem), 16), Model(problem)
    inner(oracle, 0)  # compiles
    apart, both, one, seconds, limits = [], 0, 0, [], []
    for number in np.sort(np.random.default_rng(seed).choice(oracle.count, count, replace=False)).tolist():
        plan = {field: float(column[number]) for field, column in oracle.plans.items()}
        began = time.process_time()
        rows = model.rows(plan)
        theirs = solved(rows)
        seconds.append(time.process_time() - began)
        bounding = inner(oracle, number)
        both += math.isinf(theirs) and math.isinf(bounding.lower[0])
        one += math.isinf(theirs) != math.isinf(bounding.upper)
        if math.isfinite(theirs) and math.isfinite(bounding.upper):
            apart.append(abs(theirs - bounding.upper))
            limits += slopes(rows, bounding, theirs)
    return {
        "instance": name, "seed": seed, "plans": count, "solved_by_both": len(apart), "infeasible_by_both": both,
        "infeasible_by_one": one, "apart": max(apart, default=math.nan), "cpu_s_per_plan": float(np.mean(seconds)),
        "limits": len(limits), "elasticities_apart": max((each["near"] for each in limits), default=math.nan),
        "limits_smooth": sum(each["far"] is not None for each in limits),
        "elasticities_apart_1_percent": max((each["far"] or 0.0 for each in limits), default=math.nan),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", choices=[*INSTANCES, []], default=[])
    parser.add_argument("--plans", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    prepare_jax()
    for name in arguments.instances or INSTANCES:
        row = compare(name, arguments.plans, arguments.seed)
        if arguments.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{name:>16}: {row['plans']} plans, {row['solved_by_both']} solved by both, {row['infeasible_by_both']} "
            f"infeasible by both, {row['infeasible_by_one']} by one alone; logs of the optima {row['apart']:.0e} apart "
            f"at most, {row['cpu_s_per_plan']:.2f} CPU s a plan; {row['limits']} limits that bind, elasticities "
            f"{row['elasticities_apart']:.0e} apart at most at 0.1 %, {row['elasticities_apart_1_percent']:.0e} at 1 % "
            f"({row['limits_smooth']} without a kink)",
            flush=True,
        )


if __name__ == "__main__":
    main()
