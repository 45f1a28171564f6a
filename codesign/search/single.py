"""What every search comes to where nothing varies: the one design there is, priced."""

from dataclasses import dataclass, fields

import numpy as np

from ..workloads import Plan
from .base import AbstractSearch, Problem, Report, Trace, silent

SHOWN = ("tp", "pp", "micro_batch")  # of the plan, whatever they are
WHERE_SET = (
    *("virtual_stages", "cp", "ep", "recompute", "sequence_parallel", "zero", "row_shards", "column_shards"),
    *("offload_weights", "offload_activations", "offload_optimizer"),
)


@dataclass(frozen=True)
class Single(AbstractSearch):
    """The scenario as it stands."""

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Nothing."""
        return []

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """One design; it may break limits."""
        plan, usual = problem.scenario.plan, {f.name: getattr(Plan(), f.name) for f in fields(Plan)}
        chosen = [name for name in WHERE_SET if float(getattr(plan, name)) != float(usual[name])]
        points = {name: np.array([float(getattr(plan, name))]) for name in (*SHOWN, *chosen)}
        claim = "the one design there is: neither space.plan nor space.hardware names anything that may vary"
        return Trace(points, ["single"], {"points": 1}, {}, claim)
