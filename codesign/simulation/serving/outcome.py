"""Outcome of a simulation: times of each request, and how the engine spent its steps."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .abstract_replica import AbstractReplica
from .requests import Requests

TIMELINE = ("start_s", "seconds", "steps", "decodes", "prompt_tokens", "waiting", "blocks")


@dataclass(frozen=True)
class Handed:
    """Seconds at which prompts of two pools come, are begun, have their first token and have their cache across."""

    came: np.ndarray
    began: np.ndarray
    first: np.ndarray
    ready: np.ndarray


@dataclass(frozen=True)
class Served:
    """Times of the measured requests, those after the warm-up, and counts of the whole simulation.

    `decodes` is the mean number of sequences that a step decodes and `hybrid_step_share` the share of steps that carry
    prompt tokens, while measured requests come; `rate` the requests a second that were finished in the measured time.
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    e2e_s: np.ndarray
    rate: float
    decodes: float = 0.0
    hybrid_step_share: float = 0.0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    timeline: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    handed: Handed | None = None

    def summary(self) -> dict[str, float]:
        """Means and quantiles by the names that metrics have."""
        result = {"rate": self.rate, "decodes": self.decodes, "hybrid_step_share": self.hybrid_step_share}
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            values = getattr(self, name)
            result[name] = float(values.mean()) if len(values) else float("nan")
            for share in (50, 90, 99):
                result[f"{name}.p{share}"] = float(np.quantile(values, share / 100)) if len(values) else float("nan")
        return result | {name: float(count) for name, count in self.counts.items()}

    def later(self, seconds: float) -> "Served":
        """Copy in which every request spends so long at the host before it comes to the engine."""
        return replace(self, ttft_s=self.ttft_s + seconds, e2e_s=self.e2e_s + seconds)

    def meeting(self, ttft_s: float, tpot_s: float) -> float:
        """Requests a second that keep both limits: goodput."""
        if len(self.tpot_s) != len(self.ttft_s):
            return self.rate * float(np.mean(self.ttft_s <= ttft_s))
        return self.rate * float(np.mean((self.ttft_s <= ttft_s) & (self.tpot_s <= tpot_s)))


def measured(
    requests: Requests, came: np.ndarray, first: np.ndarray, last: np.ndarray, chosen: np.ndarray, **more: Any
) -> Served:
    """Times of the chosen requests; those of a single token have no time between tokens."""
    steps = requests.outputs[chosen] - 1
    between = (last - first)[chosen] / np.maximum(steps, 1)
    ended = np.sort(last[chosen])
    spread = float(ended[-1] - ended[0]) if len(ended) else 0.0
    rate = (len(ended) - 1) / spread if spread > 0 else float("nan")
    return Served((first - came)[chosen], between[steps > 0], (last - came)[chosen], rate, **more)


COUNTS = ("steps", "mixed", "decode_tokens", "sequence_steps", "prompt_tokens", "preempted", "hit_tokens", "finished")


def counted(replicas: list[AbstractReplica]) -> dict[str, int]:
    """Sums over replicas."""
    return {name: sum(getattr(replica, name) for replica in replicas) for name in COUNTS}


def shares(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    """Sequences that a step decodes, and the share of steps with prompts, between two counts."""
    steps = max(after["steps"] - before["steps"], 1)
    return {
        "decodes": (after["sequence_steps"] - before["sequence_steps"]) / steps,
        "hybrid_step_share": (after["mixed"] - before["mixed"]) / steps,
    }
