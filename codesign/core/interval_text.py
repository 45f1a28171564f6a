"""Text for interval ends and overload warnings. An infinite end prints as "unbounded", with a sentence on why.

Where a load is not sustained in more than one draw of the model's errors in twenty, the 95th percentile of what grows
with it is infinite; in more than 19 in twenty the 5th is as well. Frames keep infinity, JSON has null for it, and
`overload_probability` says in how many of the draws that is.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from .units import engineering

UNBOUNDED = "unbounded"
RATIO = "overload_probability"
"""Column of frames: share of the draws in which a design does not sustain its load."""

AGREED = "usage.engine.ttft"
"""A metric of designs that serve under an SLO alone."""

OF_THE_LOAD = (AGREED, "slot_utilisation", "queued_share", "queue_wait_s")
"""Numbers of a design that `load_text` reads."""

TAIL = 0.05  # share of the draws beyond either end of a 90 % interval; of requests that wait, from which it is said


def has_ends(low: Any, high: Any) -> bool:
    """True if an interval is known; its upper end, or both, may be infinite."""
    return all(isinstance(end, int | float) and not isinstance(end, bool) and end == end for end in (low, high))


def end_text(end: float, text: Callable[[float], str]) -> str:
    """An end of an interval, as `text` writes numbers."""
    return UNBOUNDED if math.isinf(end) else text(end)


def between_text(low: Any, high: Any, text: Callable[[float], str], joined: str = "{} to {}") -> str:
    """Interval as text, `2.9 s to unbounded`; "unbounded" alone if both ends are infinite, empty if it is unknown."""
    if not has_ends(low, high):
        return ""
    if math.isinf(low) and math.isinf(high):
        return UNBOUNDED
    return joined.format(*(end_text(float(end), text) for end in (low, high)))


def unsustained_text(numbers: Mapping[str, Any]) -> str:
    """One sentence on draws in which a design does not sustain its load; empty where it does in all.

    Args:
        numbers: of the design, with `RATIO` where it is known.
    """
    share = numbers.get(RATIO)
    if not isinstance(share, int | float) or not share > 0:
        return ""
    agreed = AGREED in numbers and numbers[AGREED] == numbers[AGREED]
    what = "no rate meets the SLO" if agreed else "the engines do not sustain the load"
    text = f"In {share:.3g} of the draws" if share < 0.0005 else f"In {share:.1%} of the draws"
    ends = f"more than {TAIL:.0%}, so the upper ends of times and costs are {UNBOUNDED}"
    if share <= TAIL:
        ends = f"no more than {TAIL:.0%}, so all intervals are bounded"
    return f"{text} of the model's errors {what}: {ends}."


def crowded_text(numbers: Mapping[str, Any]) -> str:
    """One sentence where requests queue for a batch slot; empty where hardly any do.

    Args:
        numbers: of the design; `slot_utilisation`, `queued_share` and `queue_wait_s` where it serves an open loop.
    """
    taken, ratio, seconds = (
        value if isinstance(value := numbers.get(name), int | float) else math.nan
        for name in ("slot_utilisation", "queued_share", "queue_wait_s")
    )
    if not (taken <= 1 and ratio > TAIL and seconds == seconds):
        return ""
    return (
        f"{ratio:.0%} of the requests find all batch slots of an engine (plan.micro_batch) taken and queue for"
        f" {engineering(seconds / ratio, 's')}: a larger plan.micro_batch, or a limit on queue_wait_s, avoids it."
    )


def early_text(numbers: Mapping[str, Any]) -> str:
    """One sentence where the time to a first token lies below its own interval; else empty.

    Args:
        numbers: of the design, with the lower end `ttft_s_low` where it is known.
    """
    ttft, low = (numbers.get(name) for name in ("ttft_s", "ttft_s_low"))
    if not isinstance(ttft, int | float) or not isinstance(low, int | float) or not low > ttft:
        return ""
    return (
        "First tokens that were measured came later than this figure: the interval says by how much. What is known of"
        " an engine's own time before one comes with framework=vllm, sglang or trtllm."
    )


def load_text(numbers: Mapping[str, Any]) -> str:
    """Remarks on the load of a design; empty where there are none."""
    return " ".join(filter(None, (unsustained_text(numbers), crowded_text(numbers))))


def remarks_text(numbers: Mapping[str, Any]) -> str:
    """Remarks on one design: its load, and a first token below its interval."""
    return " ".join(filter(None, (load_text(numbers), early_text(numbers))))
