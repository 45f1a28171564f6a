"""Details of an answer that take longer: its operations, what it hangs on, how far its numbers may be off."""

import dataclasses

from ..report.run_folder import RunFolder
from ..search.results import elasticities, ops, placed
from ..uncertainty import uncertain
from .beginning import Given


def with_operations(found: Given, run: RunFolder) -> RunFolder:
    """Copy of a run with the operations of the best design."""
    best = placed(found.study.problem, run.designs.iloc[0])
    return dataclasses.replace(run, ops=ops(best))


def with_slopes(found: Given, run: RunFolder) -> RunFolder:
    """Copy of a run with elasticities, and 90 % intervals of the best design."""
    best = placed(found.study.problem, run.designs.iloc[0])
    slopes = elasticities(best, found.study.provenance)
    frame = run.designs.copy()
    for name, value in uncertain(best).columns().items():
        frame[name] = [value] + [float("nan")] * (len(frame) - 1)
    return dataclasses.replace(run, elasticities=slopes, designs=frame)
