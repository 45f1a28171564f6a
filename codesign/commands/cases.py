"""Uncertain constants of a run: its cases rebuilt from the configuration, and what the run says of them."""

import math
from typing import Any

import numpy as np

from ..report.run_folder import PLAN_PREFIX, RunFolder
from ..search import AbstractSearch, Problem, Robust
from ..search.certificate import Certificate, Robustness
from ..uncertainty import Cases as Stated
from ..verification import Asked, Refuted, StatedClaim
from ..verification.judged_cases import Case, StudyCases

SHOWN = 1e-12  # relative; how well a design that is claimed and the same in a frame must agree
SAME = 1e-9  # relative; how well what is told and what is found here must agree


def cases_of(problem: Problem, stated: Stated, how: str, tail: float, seed: int) -> StudyCases:
    """The cases that the configuration states; random ones follow from its seed.

    Raises:
        ConfigError: an uncertain leaf that does not exist, or that the space sets.
    """
    stated.check(problem.scenario, problem.space)
    scenarios = stated.scenarios(problem.scenario, seed)
    moved = [{path: float(leaf) for path, leaf in leaves.items()} for leaves in stated.leaves(problem.scenario, seed)]
    every = tuple(Case(scenario, leaves) for scenario, leaves in zip(scenarios, moved, strict=True))
    return StudyCases(every, how, tail)


def check_told(asked: Asked, search: AbstractSearch, seed: int, claimed: Certificate, claim: StatedClaim) -> None:
    """Check the cases in `summary.json`, which reports are made of, against the study and the best design.

    Raises:
        Refuted: naming the first case that differs.
    """
    if asked.cases is None or not isinstance(search, Robust):
        return
    told, stated = claimed.robust or Robustness("", 0.0, ()), search.cases
    said = (told.how, told.tail, len(told.cases))
    known = (asked.cases.how, asked.cases.tail, len(asked.cases.every))
    if said != known:
        told_of, asked_for = (f"{count} cases by how = {how}, tail = {tail}" for how, tail, count in (said, known))
        raise Refuted(f"summary.json tells of {told_of}; the study asks for {asked_for}")
    goals = asked.in_cases(claim.design)[0] if claim.design else [None] * len(asked.cases.every)
    for number, (case, row, goal) in enumerate(zip(told.cases, stated.named(seed), goals, strict=True)):
        result = row | ({} if goal is None else {"goal": goal})
        for name, value in result.items():
            if not _same(case.get(name), float(value)):
                raise Refuted(f"summary.json: case {number + 1} has {name} {case.get(name)}, not {value:.9g}")


def check_shown(folder: RunFolder, claim: StatedClaim, close: float = SHOWN) -> None:
    """The design that is claimed must be among those of the frame; `close` is how well its values must agree.

    Raises:
        Refuted: it is not.
    """
    if not claim.design:
        return
    shown = np.ones(len(folder.designs), dtype=bool)
    for name, value in claim.design.items():
        if PLAN_PREFIX + name in folder.designs:
            shown &= np.isclose(folder.designs[PLAN_PREFIX + name].to_numpy(dtype=float), value, rtol=close, atol=0.0)
    if not shown.any():
        raise Refuted("designs.parquet does not have the design that is claimed to be the best")


def _same(told: Any, found: float) -> bool:
    return isinstance(told, int | float) and math.isclose(told, found, rel_tol=SAME)
