"""Shapes of a model, plans and machine proven at once: `python benchmarks/shapes.py`.

The study `compute_optimal_machine` with depths listed twice as finely: hidden sizes, layers, degrees of parallelism,
batches, recomputation, sharding and devices, each with tokens, compute, HBM and card rate free. Prints legal
combinations, gap, CPU and wall seconds of the search, first in a process (the model traced) and again.
"""

import sys
import time

from codesign import prepare_jax, study_from_config

STUDY = (
    "experiment=compute_optimal_machine",
    "space.plan.layers=[10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44]",
    "search.gap=1e-3",
)
BAR_S, BAR_PLANS = 10.0, 100_000


def main() -> int:
    """Two searches; 1 where the bar is missed."""
    prepare_jax()
    wall = 0.0
    for when in ("first in a process", "again"):
        study = study_from_config(*STUDY)
        start, cpu = time.perf_counter(), time.process_time()
        trace = study.search.run(study.problem, study.seed)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        legal = len(next(iter(study.space.plans(study.scenario).values())))
        result = trace.certificate
        assert result is not None
        print(
            f"{when}: {legal:,} shapes and plans (bar {BAR_PLANS:,}) over {len(study.space.hardware)} numbers, proven:"
            f" {result.certified}, gap {100 * (result.gap or 0):.3f} %; {cpu:.1f} CPU s, {wall:.1f} s (bar {BAR_S:g})"
        )
    return int(not result.certified or legal < BAR_PLANS or wall > BAR_S)


if __name__ == "__main__":
    sys.exit(main())
