"""Instant answers of the shipped networks on studies held out: regret against the certified optimum, seconds.

    python benchmarks/amortised.py                       both families, 20 studies each
    python benchmarks/amortised.py training --studies 60 --seed 1
    python benchmarks/amortised.py --json

A study held out has a model, batch, devices, prices and budgets of its own; its optimum is proven to 0.1 %. Times are
of an answer once the model is compiled (guess, rounding neighbourhood, inner solves), one study after the other.
"""

import argparse
import json
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices: threads of the linear algebra only wait

from codesign import prepare_jax, study_from_config
from codesign.search.amortised import FOLDER, TrainedPredictor
from codesign.search.amortised.training import FAMILIES, regrets, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], default=[])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    prepare_jax()
    for name in arguments.families or FAMILIES:
        family, guesser = FAMILIES[name], TrainedPredictor.load(FOLDER / f"{name}.npz")
        base = study_from_config(*family.overrides).problem
        rows = regrets(guesser, family, base, arguments.studies, arguments.seed)
        result = summary(rows) | {"cpu_s_median": sorted(row["cpu_s"] for row in rows)[len(rows) // 2]}
        if arguments.json:
            print(json.dumps({"family": name} | result), flush=True)
            continue
        print(
            f"{name}: {result['within_1_percent']:.0%} of {result['studies']} studies within 1 %, median regret "
            f"{result['median']:+.2%}, worst {result['worst']:.1%}, {result['without_answer']} without an answer; "
            f"{result['seconds_median']:.2f} s ({result['cpu_s_median']:.2f} CPU s) median, "
            f"{result['seconds_worst']:.2f} s worst",
            flush=True,
        )


if __name__ == "__main__":
    main()
