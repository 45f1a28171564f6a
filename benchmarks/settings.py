"""What each setting of branch and bound is worth: points asked for where it is halved and where it is doubled.

    python benchmarks/settings.py                    three instances of benchmarks/search.py, table
    python benchmarks/settings.py 175b_time          one of them

Every run ends proven to 0.1 %, so that points asked for are what a proof costs; they do not depend on the machine.
"""

import argparse
import dataclasses
from collections.abc import Sequence

from search import INSTANCES, measure, problem_of

from codesign import prepare_jax
from codesign.search.branch_and_bound import AbstractModelOracle, oracle_for, rows_of
from codesign.search.settings import BRANCH_AND_BOUND

CHOSEN = ("22b_cost", "175b_time", "530b_scarce_hbm")
FACTORS = (0.5, 2.0)
FIXED = ("lengths", "reference_sharpness", "sharpest", "dearest")  # bound at import, a list, or limits that none reach


def points(oracles: dict[str, AbstractModelOracle]) -> int:
    """Points asked for in all, each instance proven."""
    total = 0
    for name, oracle in oracles.items():
        row, _ = measure(name, oracle, 0, 1e-3, 120.0)
        assert row["gap"] <= 1.001e-3, f"{name} is not proven"
        total += row["points"]
    return total


def sweep(oracles: dict[str, AbstractModelOracle]) -> list[tuple[str, list[float]]]:
    """(setting, relative change of the points by each factor)."""
    usual, rows = points(oracles), []
    for field in dataclasses.fields(BRANCH_AND_BOUND):
        if field.name in FIXED:
            continue
        value, changes = getattr(BRANCH_AND_BOUND, field.name), []
        for factor in FACTORS:
            moved = type(value)(value * factor)
            object.__setattr__(BRANCH_AND_BOUND, field.name, moved)  # in place: everybody has this one
            try:
                changes.append(points(oracles) / usual - 1)
            finally:
                object.__setattr__(BRANCH_AND_BOUND, field.name, value)
        rows.append((field.name, changes))
        print(f"{field.name:20} {value!s:>6} " + " ".join(f"{change:+7.1%}" for change in changes), flush=True)
    return rows


def main(names: Sequence[str]) -> None:
    """Print the table."""
    prepare_jax()
    oracles = {}
    for name in names:
        problem = problem_of(name)
        oracles[name] = oracle_for(problem, rows_of(problem), 512)
    print(f"{'setting':20} {'value':>6}  halved doubled (points asked for, {', '.join(names)})")
    sweep(oracles)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", nargs="*", choices=[*INSTANCES, []], default=[])
    main(parser.parse_args().instances or CHOSEN)
