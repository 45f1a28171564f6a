"""Which rows of the shipped experiments the walk proves convex, and what it costs.

    python benchmarks/curvature.py                      # all of conf/experiment
    python benchmarks/curvature.py train_dlrm "train_gpt3_175b model=mixtral_8x7b"

For each study: legal plans, equations of its rows, CPU seconds to trace them (the search compiles the same program) and
of the walk, and whether every row is proven for every plan and the whole box; else the operation that broke it.
"""

import sys
import time

from codesign import prepare_jax

prepare_jax()

import jax.numpy as jnp
import numpy as np

from codesign import Integer, Problem, study_from_config
from codesign.config import available
from codesign.curvature import Judgement, judge
from codesign.search.branch_and_bound import GOAL, rows_of
from codesign.staging import RowProgram, row_program


def listed_coordinates(problem: Problem, search: object) -> dict[str, list[float]]:
    """Coordinates of the values that `search=integer` lists, in which the model need not be convex."""
    if not isinstance(search, Integer):
        return {}
    values = {name: jnp.asarray(np.asarray(column, dtype=float)) for name, column in search.allowed_values.items()}
    return {name: np.clip(np.asarray(u), 0.0, 1.0).tolist() for name, u in problem.space.coordinates(values).items()}


def walked(overrides: list[str]) -> tuple[RowProgram, Judgement, dict[str, float]]:
    """Rows of a study, what the walk says of them, and figures."""
    study = study_from_config(*overrides)
    problem = study.problem
    plans = problem.space.plans(problem.scenario)
    held = listed_coordinates(problem, study.search)
    begun = time.process_time()
    program = row_program(problem.scenario, problem.space, tuple(plans), rows_of(problem), GOAL)
    traced = time.process_time()
    judgement = judge(program, [problem.scenario], plans, held=held)
    figures = {"trace_s": traced - begun, "walk_s": time.process_time() - traced}
    return program, judgement, figures | {"plans": len(next(iter(plans.values()), [0]))}


def main(studies: list[str]) -> None:
    """Print a line a study."""
    print(f"{'study':44} {'plans':>8} {'equations':>9} {'trace':>6} {'walk':>6}  rows")
    for study in studies:
        program, judgement, figures = walked([f"experiment={study.split()[0]}", *study.split()[1:]])
        unproven = judgement.unproven
        said = f"all {len(program.names)} proven" if not unproven else f"{len(unproven)} of {len(program.names)} not"
        print(
            f"{study:44} {figures['plans']:8,.0f} {len(program.program.equations):9,}"
            f" {figures['trace_s']:6.2f} {figures['walk_s']:6.2f}  {said}",
            flush=True,
        )
        for row, why in unproven.items():
            print(f"    {row}: {why}")


if __name__ == "__main__":
    main(sys.argv[1:] or available("experiment"))
