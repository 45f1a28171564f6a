"""Weights for `workload=any_schedule`: the rows whose combination bounds each group of plans best.

    python benchmarks/any_schedule.py OUT.yaml [OVERRIDES ...]        default: experiment=serve_any_schedule
    python benchmarks/any_schedule.py dips [OVERRIDES ...]            how much shorter a step may be that carries more

For all plans of one number of devices, tensor and pipeline degree the hardware is sought, between the least and the
most of every variable, at which kinds of steps just allow the rate that is asked (a linear programme); its dual
solution are the group's weights. Where even the most does not, they are those there, which rule the group out. Any
weights give a bound: what is chosen here decides how near it is, not whether it holds. `codesign optimize` with
`workload.weights` as written proves it, `codesign verify` derives it anew.
"""

import itertools
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from scipy import optimize

from codesign import Study, prepare_jax, study_from_config
from codesign.core import ConfigError
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.model.workloads import AnySchedule

NAMES = ("device_count", "tp", "pp")
HALVINGS = 5  # of the way from the least hardware to the most
DIGITS = 4  # of weights
DIP_DRAWS, DIP_DECODES, DIP_TOKENS, DIP_HELD = 12, 512, 2048, (1.0, 48.0, 320.0)
LEAST, MOST = 1e-9, 1e6  # of what is divided by, of a weight


class Kinds(NamedTuple):
    """Kinds of steps on a design: seconds, fewest decodes and prompt tokens, most of both; and the design's numbers."""

    seconds: np.ndarray
    decodes: np.ndarray
    tokens: np.ndarray
    most_decodes: np.ndarray
    most_tokens: np.ndarray
    engines: np.ndarray


class Groups:
    """The plans of a study by devices and degrees."""

    def __init__(self, study: Study):
        self.study, plan = study, study.space.plan
        assert isinstance(study.scenario.workload, AnySchedule)
        self.work, self.names = study.scenario.workload, list(study.space.hardware)
        lists = [np.array(sorted(plan[name]), float) for name in ("micro_batch", "token_budget")]
        self.decodes, self.chunks = (grid.ravel() for grid in np.meshgrid(*lists, indexing="ij"))

        def one(micro_batch: Any, chunk: Any, group: Any, numbers: Any) -> Any:
            point = {"micro_batch": micro_batch, "token_budget": chunk, **group, **numbers}
            placed = study.space.place(study.scenario, point)
            layout, work = placed.layout, placed.workload
            assert isinstance(work, AnySchedule)
            seconds, engines = evaluate(placed).extra["least_step_s"], layout.dp * layout.plan.pp
            return (seconds, *work.carried(placed.plan), engines)

        self._priced = interpreted(jax.vmap(one, in_axes=(0, 0, None, None)), always=True)

    def listed(self) -> list[tuple[float, ...]]:
        """Devices and degrees of every group."""
        lists = [self.study.space.plan[name] for name in NAMES]
        return [one for one in itertools.product(*lists) if one[0] % (one[1] * one[2]) == 0]

    def kinds(self, group: dict[str, float], share: float) -> Kinds:
        """Of a group on hardware so far from the least of all variables to the most, in logs."""
        numbers = {name: v.low * (v.high / v.low) ** share for name, v in self.study.space.hardware.items()}
        plain = [{name: np.asarray(value, float) for name, value in part.items()} for part in (group, numbers)]
        result = self._priced(self.decodes, self.chunks, *plain)
        return Kinds(*(np.asarray(part, float) for part in result))

    def at(self, group: dict[str, float], share: float) -> tuple[float, list[float]]:
        """Requests/s that kinds of steps allow there at most, and the weights that prove it."""
        work, kinds = self.work, self.kinds(group, share)
        prompt, steps = float(work.computed_tokens()), float((work.output_tokens - 1) / work.accepted_tokens)
        answer = float((work.output_tokens - 1) * work.tpot_s)
        first = group["pp"] * prompt * float(work.ttft_s - work.request_overhead_s)
        uses = kinds.seconds * np.stack([1 / kinds.engines, kinds.decodes / answer, kinds.tokens / first])
        brings = np.stack([-kinds.most_decodes, -kinds.most_tokens])
        rows = np.column_stack([np.vstack([uses, brings]), [0.0, -1.0, -1.0, steps, prompt]])
        cost = np.append(np.zeros(len(kinds.seconds)), -1.0)
        result = optimize.linprog(cost, A_ub=rows, b_ub=[1.0, 0.0, 0.0, 0.0, 0.0])
        busy, between, before, decode, token = np.maximum(-result.ineqlin.marginals, 0.0)
        per = float(work.arrivals_per_s) / max(busy, LEAST)
        return float(-result.fun), [min(w, MOST) for w in (token / max(decode, LEAST), between * per, before * per)]

    def weights(self, group: dict[str, float]) -> list[float]:
        """Of a group."""
        asked = float(self.work.arrivals_per_s)
        most, result = self.at(group, 1.0)
        low, high = 0.0, 1.0
        for _ in range(HALVINGS if most > asked else 0):
            middle = 0.5 * (low + high)
            most, here = self.at(group, middle)
            low, high, result = (low, middle, here) if most > asked else (middle, high, result)
        return [float(f"{value:.{DIGITS}g}") for value in result]


def deepest_dip(overrides: list[str], seed: int = 0) -> float:
    """Share by which a step was shorter than one of the same group and hardware that carries less, at most.

    Along all numbers of decodes at three of prompt tokens, and along prompt tokens at three of decodes.
    """
    exact = ("workload.decode_spacing=1", "workload.prompt_spacing=1", "space.plan.micro_batch=[1,2]",
             "space.plan.token_budget=[1,2]")  # fmt: skip
    groups = Groups(study_from_config(*overrides, *exact))
    rng, worst = np.random.default_rng(seed), 0.0
    decodes, tokens = np.arange(2.0, DIP_DECODES + 1), np.arange(2.0, DIP_TOKENS, 1.0)
    for _ in range(DIP_DRAWS):
        one = groups.listed()[rng.integers(len(groups.listed()))]
        group, share = dict(zip(NAMES, map(float, one), strict=True)), float(rng.uniform())
        for held in DIP_HELD:
            for one, other in ((decodes, np.full(len(decodes), held)), (np.full(len(tokens), held), tokens)):
                groups.decodes, groups.chunks = one, other
                seconds = groups.kinds(group, share).seconds
                worst = max(worst, float((1 - seconds / np.maximum.accumulate(seconds)).max()))
    return worst


def main() -> None:
    """Write the rows, or print the deepest dip."""
    prepare_jax()
    if len(sys.argv) < 2 or "=" in sys.argv[1]:
        raise ConfigError("name a file to write, OUT.yaml, or dips")
    asked = sys.argv[2:] or ["experiment=serve_any_schedule"]
    if sys.argv[1] == "dips":
        print(f"deepest dip over {DIP_DRAWS} designs: {deepest_dip(asked):.2%}")
        return
    groups = Groups(study_from_config(*asked))
    listed = groups.listed()
    out, rows, began = Console(stderr=True), [], time.process_time()
    for one in track(listed, "groups of plans", console=out, disable=not out.is_terminal):
        group = dict(zip(NAMES, map(float, one), strict=True))
        rows.append([*one, *groups.weights(group)])
    lines = [f"  - [{', '.join(f'{value:g}' for value in row)}]" for row in rows]
    Path(sys.argv[1]).write_text("weights: # device_count, tp, pp, prompt_worth, tpot_weight, ttft_weight\n"
                                 + "\n".join(lines) + "\n", encoding="utf-8")  # fmt: skip
    print(f"{len(rows)} groups of plans, {time.process_time() - began:.1f} CPU s")


if __name__ == "__main__":
    main()
