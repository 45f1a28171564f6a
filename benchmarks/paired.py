"""Two checkouts held against each other, turn by turn: what proofs, fronts and mixes cost and find before and after.

    git worktree add /tmp/before COMMIT
    python benchmarks/paired.py /tmp/before .                  all questions, two rounds
    python benchmarks/paired.py /tmp/before . --rounds 3 22b_cost front
    python benchmarks/paired.py /tmp/before . --csv paired.csv

Every question is asked of both, one right after the other in processes of their own, and the order changes with every
round: what else the machine does falls on both alike. CPU seconds are of the search alone, compiled before. Questions
are the instances of `search.py` (proven to 0.1 %), `front` (time against cost of `22b_cost`) and `mix` (two jobs on
one hardware, proven to 1 %).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

INSTANCES = ("22b_cost", "175b_time", "1t_time", "1t_energy", "175b_32k_cost", "530b_scarce_hbm")
QUESTIONS = (*INSTANCES, "front", "mix")
SHOWN = ("best", "gap", "bound", "points", "solved", "open", "certified", "designs")


def asked(question: str, seed: int) -> dict[str, Any]:
    """The answer of the checkout that this process imports; only names that have long been public."""
    sys.path.insert(0, str(Path.cwd() / "benchmarks"))
    import search  # the benchmark of that name in the checkout

    from codesign import DesignSpace, Mix, MixEntry, Pareto, Problem, prepare_jax

    prepare_jax()
    if question in INSTANCES:
        oracle = search.oracle_for(problem := search.problem_of(question), search.rows_of(problem), 512)
        oracle.tangents(oracle.roots[:1], search.np.full((1, len(oracle.variables)), 0.5), 50.0)
        return search.measure(question, oracle, seed, 1e-3, 120.0)[0]
    problem = search.problem_of("22b_cost")
    if question == "front":
        asks, goals = Pareto(levels=4, between=4, seconds=120.0), problem
    else:
        fewer = DesignSpace({name: values[::2] for name, values in problem.space.plan.items()}, problem.space.hardware)
        goals = Problem(problem.scenario, fewer, problem.objective)
        other = Problem(search.problem_of("175b_time").scenario, fewer, search.problem_of("175b_time").objective)
        jobs = {"one": goals, "other": other}
        asks = Mix({name: MixEntry() for name in jobs}, gap=1e-2, seconds=120.0).bound(jobs)
    began = time.process_time()
    trace = asks.run(goals, seed)
    cpu, claimed = time.process_time() - began, trace.certificate.as_plain()
    row = {"instance": question, "cpu_s": cpu, "points": trace.counts["points"]}
    if question == "mix":
        return row | {name: claimed[name] for name in ("best", "bound", "gap", "certified")}
    front = claimed["front"]
    proven = sum(point["certified"] for point in front["points"])
    return row | {
        "best": front["hypervolume"], "bound": front["hypervolume_at_most"], "designs": len(front["points"]),
        "certified": proven, "gap": max(point["gap"] for point in front["points"]),
    }  # fmt: skip


def answer(checkout: Path, question: str, seed: int) -> dict[str, Any]:
    """The same in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--answer", question, "--seed", str(seed)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{question} in {checkout}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def told(question: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    """One line: median CPU seconds, their median ratio in pairs, and what was found, where it is not the same."""
    first, second = (median(row["cpu_s"] for row in rows) for rows in (before, after))
    ratio = median(b["cpu_s"] / a["cpu_s"] for a, b in zip(before, after, strict=True))
    parts = [f"{question:>16}: {first:7.2f} -> {second:7.2f} CPU s (x{ratio:.2f} in pairs)"]
    for name in SHOWN:
        if name in before[0]:
            pair = {f"{rows[0][name]:.6g}" for rows in (before, after)}
            parts.append(f"{name} {before[0][name]:.6g}" + ("" if len(pair) == 1 else f" -> {after[0][name]:.6g}"))
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], default=[])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--answer", choices=QUESTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.answer:
        print(json.dumps(asked(arguments.answer, arguments.seed), default=float))
        return
    if arguments.before is None or arguments.after is None:
        parser.error("name two checkouts")
    checkouts = {"before": arguments.before.resolve(), "after": arguments.after.resolve()}
    rows: list[dict[str, Any]] = []
    for question in arguments.questions or QUESTIONS:
        result: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
        for number in range(arguments.rounds):
            for name in list(checkouts)[:: 1 if number % 2 == 0 else -1]:
                result[name].append(answer(checkouts[name], question, number))
                rows.append({"checkout": name, "round": number} | result[name][-1])
        print(told(question, result["before"], result["after"]), flush=True)
    if arguments.csv:
        import pandas as pd

        pd.DataFrame(rows).drop(columns="design", errors="ignore").to_csv(arguments.csv, index=False)


if __name__ == "__main__":
    main()
