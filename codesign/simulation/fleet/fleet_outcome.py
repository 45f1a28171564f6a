"""Outcome of a fleet: times of each request and its replica, what prefixes saved, by class, and along the time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.errors import ConfigError
from ..serving.requests import Requests
from ..serving.serve import ServedTimes

__all__ = ["FleetServed", "LatencyLimits"]


@dataclass(frozen=True)
class LatencyLimits:
    """Limits on the time to a first token and between tokens, seconds, and the share of requests to keep both."""

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")
    share: float = 0.99

    def __post_init__(self) -> None:
        """Limits above 0.

        Raises:
            ConfigError: naming the one that no request can keep.
        """
        if not (self.ttft_s > 0 and self.tpot_s > 0 and 0 < self.share <= 1):
            raise ConfigError(
                f"slo: ttft = {self.ttft_s:g} s and tpot = {self.tpot_s:g} s must be above 0, share = {self.share:g} in"
                " (0, 1]"
            )


@dataclass(frozen=True)
class FleetServed:
    """`served` as of one engine, of the requests after the warm-up; the arrays are of all requests.

    replica: where each was answered; replica_s: seconds that replicas were paid for, those of their start included;
    end_s: the last answer; samples: (seconds, ready, paid, waiting, outstanding of each replica); starts, failures,
    moved: replicas started by a policy, failed, and requests that these lost; refused: requests that were turned away,
    which have no times and count as late.
    """

    served: ServedTimes
    requests: Requests
    came: np.ndarray
    first: np.ndarray
    last: np.ndarray
    replica: np.ndarray
    replica_s: float
    end_s: float
    samples: list[Any] = field(default_factory=list[Any], repr=False)
    starts: int = 0
    failures: int = 0
    moved: int = 0
    refused: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that were not computed."""
        return self.served.counts["hit_tokens"] / float(self.requests.prompts.sum())

    def kept(self, agreed: LatencyLimits) -> np.ndarray:
        """True for each request that kept both limits."""
        steps = np.maximum(self.requests.outputs - 1, 1)
        return (self.first - self.came <= agreed.ttft_s) & ((self.last - self.first) / steps <= agreed.tpot_s)

    def attainment(self, agreed: LatencyLimits, begin: float = 0.2) -> float:
        """Share of the requests after the warm-up that kept both limits."""
        return float(self.kept(agreed)[int(len(self.came) * begin) :].mean())

    def by_class(self, agreed: dict[str, LatencyLimits], begin: float = 0.2) -> list[dict[str, Any]]:
        """One row a class, one of all where there are none: times, share that kept its limits, whether enough."""
        chosen = np.arange(int(len(self.came) * begin), len(self.came))
        names = self.requests.class_names or ("all",)
        codes = self.requests.classes[chosen] if self.requests.class_names else np.zeros(len(chosen), int)
        rows: list[dict[str, Any]] = []
        for code, name in enumerate(names):
            indices = chosen[codes == code]
            if not len(indices):
                continue
            limits = agreed.get(name, agreed.get("", LatencyLimits()))
            steps = np.maximum(self.requests.outputs[indices] - 1, 1)
            ttft, tpot = (self.first - self.came)[indices], (self.last - self.first)[indices] / steps
            answered = ~np.isnan(self.last[indices])
            share = float(self.kept(limits)[indices].mean())
            rows.append({
                "class": name, "requests": len(indices), "attainment": share, "agreed": limits.share,
                "meets": share >= limits.share,
                "by_replica": np.bincount(self.replica[indices][self.replica[indices] >= 0]).tolist(),
                "refused": float(1 - answered.mean()),
                **{f"ttft_p{q}_s": _percentile(ttft[answered], q) for q in (50, 90, 99)},
                **{f"tpot_p{q}_s": _percentile(tpot[answered], q) for q in (50, 90, 99)},
            })  # fmt: skip
        return rows


def _percentile(values: np.ndarray, share: int) -> float:
    return float(np.percentile(values, share)) if len(values) else float("nan")
