"""Evidence of a front, for others to check: statements about its metrics, and weighted tangents that prove them.

Source: see docs/optimisation.md, section 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Evidence
from ..branch_and_bound.evidence import VERSION, nodes_of, table_of_cuts, table_of_points
from ..branch_and_bound.model_oracle import AbstractModelOracle
from ..branch_and_bound.oracle import GOAL
from ..certificate import MARGIN
from .dual_pool import Backed, Pool, Statement
from .epsilon_constraint import FrontWalk

STEPS = 1e9  # of a log: bounds are told in whole numbers of them, rounded so that they say less
METRIC = "metrics."  # before the name of a row that is the log of a metric, so that it cannot be a limit's


def settle(walk: FrontWalk, oracle: AbstractModelOracle) -> tuple[list[Statement], Backed]:
    """Claim of a walk no more than the weights kept in its pool prove; returns what is claimed, and by what.

    Statements are in the order of the designs found, levels that nothing keeps to, and least values of the others.
    """
    pool = walk.sweep.pool
    statements = [Statement(GOAL, one.levels, one.lower) for one in walk.found]
    statements += [Statement(GOAL, levels, np.inf) for levels in walk.impossible]
    statements += [Statement(row, {}, lowest) for row, lowest in walk.lowest.items()]
    backed = pool.back(statements, oracle)
    bounds = np.where(np.isfinite(backed.bounds), np.floor((backed.bounds - MARGIN) * STEPS) / STEPS, backed.bounds)
    backed = replace(backed, bounds=bounds)
    result, rest = len(walk.found), len(walk.found) + len(walk.impossible)
    for one, bound in zip(walk.found, backed.bounds[:result].tolist(), strict=True):
        one.lower = bound
    never = np.isposinf(backed.bounds[result:rest]).tolist()
    walk.impossible = [levels for levels, kept in zip(walk.impossible, never, strict=True) if kept]
    walk.lowest = dict(zip(walk.lowest, backed.bounds[rest:].tolist(), strict=True))
    claimed = [Statement(s.goal, s.levels, float(b)) for s, b in zip(statements, backed.bounds, strict=True)]
    return claimed, backed


def front_evidence(
    oracle: AbstractModelOracle,
    pool: Pool,
    statements: Sequence[Statement],
    backed: Backed,
    metrics: tuple[str, ...],
    designs: Mapping[str, np.ndarray],
    of: Sequence[int],
) -> Evidence:
    """The notes that are used, the statements, the designs of the front with the statement of each.

    Args:
        oracle: numbers and their plans.
        pool: has the notes.
        statements: with the bounds that are claimed.
        backed: which notes say so.
        metrics: of the front, the first of which is the goal.
        designs: plan fields and hardware variables -> values.
        of: statement of each design.
    """
    header, columns = nodes_of(oracle, pool.plan[backed.used])
    known = [GOAL, *(name for name in oracle.names if name != GOAL)]
    told = {name: METRIC + name if name in metrics[1:] else name.removeprefix("limit.") for name in known}
    header["views"] = {view: [told[name] for name in rows] for view, rows in header["views"].items()}
    header |= {"version": VERSION, "rows": [told[name] for name in known], "variables": list(oracle.variables)}
    terms = pool.terms(backed.used)
    points, sharpness, terms["point"] = pool.places.distinct(terms["point"])
    order = np.argsort(terms["node"], kind="stable")
    terms["row"] = np.array([known.index(name) for name in oracle.names])[terms["row"]]
    tables = {
        "nodes": columns,
        "points": table_of_points(oracle.variables, points, sharpness),
        "cuts": table_of_cuts({name: column[order] for name, column in terms.items()}),
        "statements": _statements(statements, metrics),
        "designs": {name: np.asarray(values) for name, values in designs.items()} | {"statement": np.array(of)},
    }  # fmt: skip
    return Evidence(header, tables)


def _statements(statements: Sequence[Statement], metrics: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Place of what is at least `bound` among the metrics, and the levels of the others; inf where there is none."""
    rows = (GOAL, *metrics[1:])
    columns: dict[str, Any] = {"metric": np.array([rows.index(one.goal) for one in statements], dtype=np.int16)}
    for row, name in zip(rows[1:], metrics[1:], strict=True):
        columns[f"level.{name}"] = np.array([one.levels.get(row, np.inf) for one in statements])
    return columns | {"bound": np.array([one.bound for one in statements])}
