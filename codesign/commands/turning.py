"""Best design under other prices: the found designs priced anew, each with its plan as it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd

from ..core.fields import get_path, range_of, replace
from ..model.metrics import Account
from ..model.ownership import Cloud
from ..model.scenario import Scenario
from ..staging import base_of, running
from ..uncertainty import with_room
from .candidates import Candidate

PRICE, RENT = "cluster.accelerator.price_usd", "cluster.facility.ownership.usd_per_device_h"
UNMOVED = 1e-9  # relative: a number that changes the goal by less is none of its prices
SHARED = (
    ("electricity", "cluster.facility.usd_per_j"), ("the time of write-off", "cluster.facility.amortisation_s"),
    ("PUE", "cluster.facility.pue"), ("the share of its life in use", "cluster.facility.utilisation"),
)  # fmt: skip
"""Prices and rates that all candidates have in common: (name, its leaf)."""

HIGHEST_PUE = 4.0
FACTORS = (0.5, 2.0)  # prices of energy and years of use differ by about so much between sites


def priced_anew(
    candidates: Sequence[Candidate], *, maximised: bool, more: tuple[str, float] | None = None
) -> pd.DataFrame:
    """Find the best design, and its goal, with each of the numbers that all share halved and doubled.

    Numbers that change no goal are left out, as electricity where everything is rented. The last row is the price, or
    the rent, of the best one's accelerators: `factor` is how many times it may be what it is until the next one
    (`best`) is as good; infinite where the goal does not grow with it. Empty with less than two designs. `more` is a
    name and a goal that no such number changes.
    """
    result = [candidate for candidate in candidates if candidate.best is not None]
    if len(result) + (more is not None) < 2 or not result:
        return pd.DataFrame()
    sign, names = -1.0 if maximised else 1.0, [candidate.label for candidate in result]
    cases: list[dict[str, float]] = [{path: factor} for _, path in SHARED for factor in FACTORS]
    paths = [_paid(candidate.scenario) for candidate in result]
    goals = sign * np.array([_goals(one, [{}, {path: 2.0}, *cases]) for one, path in zip(result, paths, strict=True)])
    if more is not None:
        names.append(more[0])
        paths.append("")
        goals = np.vstack([goals, np.full(goals.shape[1], sign * more[1])])
    now, dearer, others = goals[:, 0], goals[:, 1], goals[:, 2:]
    rows: list[dict[str, Any]] = []
    for at, (words, path, factor) in enumerate((words, path, f) for words, path in SHARED for f in FACTORS):
        if np.allclose(others[:, at], now, rtol=UNMOVED, atol=0.0):
            continue
        best = int(np.argmin(others[:, at]))
        goal = sign * others[best, at]
        rows.append({"what": words, "path": path, "factor": factor, "best": names[best], "goal": goal})
    first, second = (int(place) for place in np.argsort(now, kind="stable")[:2])
    slope = dearer[first] - now[first]
    until = 1 + (now[second] - now[first]) / slope if slope > 0 else np.inf
    paid = "price" if paths[first] == PRICE else "rent"
    what = f"the {paid} of {names[first]}'s accelerators" if paths[first] else f"the price of the {names[first]}"
    rows.append(
        {"what": what, "path": paths[first], "factor": until, "best": names[second], "goal": sign * now[second]}
    )
    return pd.DataFrame(rows)


def _paid(scenario: Scenario) -> str:
    """The leaf that says what an accelerator costs: its price, or its rent."""
    owner = scenario.cluster.facility.ownership
    return f"{RENT}.{owner.device}" if isinstance(owner, Cloud) else PRICE


def _goals(candidate: Candidate, cases: Sequence[Mapping[str, float]]) -> list[float]:
    """The goal of a candidate's best design where some numbers are so many times what they are, as far as legal."""
    assert candidate.study is not None
    objective, scenario = candidate.study.objective, with_room(candidate.scenario)

    def told(account: Account) -> list[Any]:
        return [objective.value(account.metrics, objective.goal)]

    program = base_of(scenario).asked(told)
    changed = []
    for case in cases:
        changes = {path: _legal(scenario, path, float(get_path(scenario, path)) * f) for path, f in case.items()}
        changed.append(jax.tree.leaves(with_room(replace(scenario, changes)) if changes else scenario))
    kinds = [program.kinds[slot] for slot in program.inputs]
    columns = zip(*changed, strict=True)
    stacked = [np.stack([np.asarray(one, kind) for one in leaf], -1) for leaf, kind in zip(columns, kinds, strict=True)]
    (values,) = running(program)(*stacked)
    return [float(value) for value in np.broadcast_to(np.asarray(values, dtype=float), (len(cases),))]


def _legal(scenario: Scenario, path: str, value: float) -> float:
    """The value, or the end of the leaf's legal range that it lies beyond; a PUE of at most 4."""
    known = range_of(scenario, path) or {}
    high = HIGHEST_PUE if path.endswith(".pue") else known.get("high", np.inf)
    return min(max(value, known.get("low", -np.inf)), high)
