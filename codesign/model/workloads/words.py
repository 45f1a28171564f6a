"""Vocabulary of reports: a family of workloads brings its own words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Words:
    """Vocabulary of one family.

    job: what is done with the model (`gpt3_175b training on 1,024 x h100_sxm`). step: what takes `time_s`. item: what
    throughput counts, where metrics say token. headline: metrics by which a design is told. metrics: name of a metric
    -> (label, unit as `report.labels.number` takes it). parts: part of the time -> label. memory: class of data ->
    label. plan: field -> text of its value, such as `{:g} patches`, shown where that is above 1. assuming: what a
    bound on this family holds under beside the rules of its proof, such as a statement that was tested and not proven.
    """

    job: str = "batches"
    step: str = "batch"
    item: str = "token"
    headline: tuple[str, ...] = ("time_s", "tokens_per_s", "mfu")
    metrics: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    memory: Mapping[str, str] = field(default_factory=dict[str, str])
    plan: Mapping[str, str] = field(default_factory=dict[str, str])
    assuming: str = ""

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Words":
        """Words from what `dataclasses.asdict` wrote; keys of other versions are left out."""
        result = asdict(cls()) | {key: value for key, value in told.items() if key in cls.__dataclass_fields__}
        result["metrics"] = {str(name): (str(label), str(unit)) for name, (label, unit) in result["metrics"].items()}
        result["headline"] = tuple(result["headline"])
        return cls(**result)


OTHERS = Words()
TRAINING = Words("training", "training step")
SERVING = Words(
    "serving",
    "batch of requests",
    headline=("ttft_s", "tpot_s", "tokens_per_s"),
    metrics={"time_s": ("Batch time", "s")},
)
OPEN_SERVING = Words(
    "serving",
    "batch of requests",
    headline=("ttft_s", "ttft_p99_s", "tpot_s", "tpot_p99_s", "e2e_p99_s", "requests_per_s", "tokens_per_s"),
    metrics={
        "time_s": ("Batch time", "s"),
        **{
            f"{name}_{share}_s": (f"{label}, {share}", "s")
            for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "Whole request"))
            for share in ("p50", "p90", "p99")
        },
        "slot_utilisation": ("Batch slots in use", "%"),
        "queued_share": ("Requests queued for a slot", "%"),
        "queue_wait_s": ("Queueing delay", "s"),
    },
)
