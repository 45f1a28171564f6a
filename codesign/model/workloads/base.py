"""Interface of workloads."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.examples import by_default
from ...core.fields import Module
from ...core.pretty import as_text
from .layer_operations import Precision
from .plan import AbstractModelPlan, Layout
from .plan_fields import AbstractPlan
from .schedule import Op, Priced, Timeline

# Vocabulary of reports: a family of workloads brings its own words.


@dataclass(frozen=True)
class FamilyVocabulary:
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
    def from_json(cls, stored: Mapping[str, Any]) -> "FamilyVocabulary":
        """Words from what `dataclasses.asdict` wrote; keys of other versions are left out."""
        result = asdict(cls()) | {key: value for key, value in stored.items() if key in cls.__dataclass_fields__}
        result["metrics"] = {str(name): (str(label), str(unit)) for name, (label, unit) in result["metrics"].items()}
        result["headline"] = tuple(result["headline"])
        return cls(**result)


OTHERS = FamilyVocabulary()
TRAINING = FamilyVocabulary("training", "training step")
SERVING = FamilyVocabulary(
    "serving",
    "batch of requests",
    headline=("ttft_s", "tpot_s", "tokens_per_s"),
    metrics={"time_s": ("Batch time", "s")},
)
OPEN_SERVING = FamilyVocabulary(
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


BESIDE = "keeps feed-forward networks beside attention; choose workload=attention_ffn prefill=same ffn=same"
"""End of a line that refuses a pool of feed-forward networks."""

Moments = dict[str, dict[str, tuple[Array, Array]]]
"""Moment -> class of data -> (bytes per device, the part of them that stays in tier 1 if the class is offloaded)."""


class AbstractWorkload(Module):
    """A job: lowers a layout to operations, and says what it keeps in memory.

    `plan_class` are the plans by which this family is laid out, `words` what reports call its numbers.
    """

    plan_class: ClassVar[type[AbstractPlan]] = AbstractModelPlan
    words: ClassVar[FamilyVocabulary] = OTHERS

    model: eqx.AbstractVar[Any]  # has a `name`; the rest is the family's own
    precision: eqx.AbstractVar[Precision]
    two_pools: ClassVar[bool] = False  # whether prompts may have accelerators of their own (`Cluster.prefill`)

    ffn_apart: ClassVar[bool] = False  # whether feed-forward networks may lie apart (`Cluster.ffn`)

    two_kinds: ClassVar[bool] = False  # whether stages may be accelerators of a second kind (`Cluster.later_stages`)

    __repr__ = as_text

    @classmethod
    def example(cls) -> "AbstractWorkload":
        """A small job, which contracts price; classes without defaults bring their own."""
        return by_default(cls)

    def laid_out(self, layout: Layout) -> Layout:
        """The layout with intermediate results that a job needs repeatedly, computed once."""
        return layout

    @abc.abstractmethod
    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """All operations of one device; counts as in `ops`."""

    @abc.abstractmethod
    def number_format(self) -> str:
        """Format of the arithmetic, whose dense peak is the denominator of MFU."""

    @abc.abstractmethod
    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Compose the priced operations into the time, breakdown and energy of one step or batch."""

    def under(self, first_token: Array) -> "AbstractWorkload":
        """Copy whose first tokens come later than modelled by a factor, which promises must allow for."""
        del first_token
        return self

    @abc.abstractmethod
    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Phase -> how often one device runs the operations of that phase in one step or batch."""

    @abc.abstractmethod
    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Class of data -> (bytes per device, the part of them that stays in tier 1 if the class is offloaded)."""

    def memory_moments(self, layout: Layout) -> Moments:
        """`footprint` of each moment; by default of a step, in which all lies there at once."""
        return {"step": self.footprint(layout)}

    def afar_bytes(self, layout: Layout) -> dict[str, Array]:
        """Class of data -> bytes per device of which a share is offloaded, where `footprint` is of another stage."""
        del layout
        return {}

    def prefill_bytes(self, layout: Layout) -> dict[str, Array]:
        """Class of data -> bytes per device of a pool that computes prompts beside; nothing where there is none."""
        return {}

    def ffn_bytes(self, layout: Layout) -> dict[str, Array]:
        """Class of data -> bytes per device of a pool of feed-forward networks; nothing where there is none."""
        return {}

    def later_bytes(self, layout: Layout) -> dict[str, Array]:
        """Class of data -> bytes per device of stages of a second kind; nothing where there are none."""
        return {}

    def saved_bytes(self, layout: Layout) -> Array | None:
        """Bytes of a checkpoint of the whole job; None where a job that fails begins anew with what is under way."""
        return None

    def writers(self, layout: Layout) -> tuple[Array, Array]:
        """Devices that a checkpoint has if all write as much as one of the first kind, and as one of the second."""
        return layout.devices, layout.devices

    def run_tokens(self, layout: Layout) -> Array | None:
        """Tokens after which the job is done; None where it has no end."""
        return None

    def limits(self, layout: Layout) -> dict[str, Array]:
        """Limits of the job beside memory -> used share, feasible up to 1."""
        return {}

    @abc.abstractmethod
    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of the layout -> relative violation, 0 where it holds: a plan that does not divide is not legal."""

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """One line on a rule of this family that a plan breaks; None leaves it at the rule's name."""
        return None

    def check_lists(self, listed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse lists of plan fields that do not belong together in a study; most jobs take any.

        Args:
            listed: field of the plan -> its values.

        Raises:
            ConfigError: what is wrong with them.
        """
        if "ffn_devices" in listed and not self.ffn_apart:
            raise ConfigError(f"space.plan.ffn_devices: {type(self).__name__} {BESIDE}")

    def hopeless(self, layout: Layout, capacity: dict[str, float]) -> str | None:
        """One line where no plan can fit, whatever is cut; None leaves it to the search for a change that fits.

        Args:
            layout: the plan on its devices.
            capacity: usable bytes of each memory tier of one device.
        """
        return None
