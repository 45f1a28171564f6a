"""Chance that a design fits its memory: what is counted exactly, and what is off by a factor.

Weights, gradients, optimizer states and caches are counted; activations, working sets and captured graphs are
predicted, with a factor exp(s z) between measured and predicted, z standard normal. With E bytes counted, A predicted
and C usable

    P(fits) = Phi(log((C - E) / A) / s)        fits with chance p:  E + A exp(s Phi^-1(p)) <= C

so that a chance is one more constraint of the same form: the used share at a quantile of the error.

Assumes: s = `SPREAD`; one factor for all that is predicted on a device. Source: [assumption]; no table of measured
memory is fitted on, activations are meant to be right to 20 % at worst.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist

from jaxtyping import Array

__all__ = ["PREDICTED", "SPREAD", "chance_that_fits", "interval_bytes", "predicted_bytes", "stretch"]

SPREAD = 0.15
"""Standard deviation of log(measured / predicted) of bytes that are not counted."""
PREDICTED = ("activations", "working", "graphs", "kept")
"""Classes of data whose bytes are predicted; all others are counted."""
NORMAL = NormalDist()


def predicted_bytes(used: Mapping[str, Array], tier: str) -> tuple[Array | float, Array | float]:
    """Bytes of a tier that are counted, and that are predicted.

    Args:
        used: `tier/class` -> bytes of a device.
        tier: whose.
    """
    own = {name.partition("/")[2]: nbytes for name, nbytes in used.items() if name.startswith(f"{tier}/")}
    counted = [nbytes for name, nbytes in own.items() if name not in PREDICTED]
    guessed = [nbytes for name, nbytes in own.items() if name in PREDICTED]
    return sum(counted[1:], counted[0]) if counted else 0.0, sum(guessed[1:], guessed[0]) if guessed else 0.0


def factor(chance: float) -> float:
    """By how much predicted bytes are larger than predicted with this chance at most."""
    return math.exp(SPREAD * NORMAL.inv_cdf(chance))


def stretch(used: Mapping[str, Array], tier: str, chance: float) -> Array | float:
    """All bytes of a tier at the quantile of the error over all that are predicted."""
    counted, guessed = predicted_bytes(used, tier)
    return (counted + factor(chance) * guessed) / (counted + guessed)


def chance_that_fits(counted: float, predicted: float, usable: float) -> float:
    """Chance that all of it fits."""
    if predicted <= 0 or counted >= usable:
        return 1.0 if counted <= usable and predicted <= 0 else 0.0
    return NORMAL.cdf(math.log((usable - counted) / predicted) / SPREAD)


def interval_bytes(predicted: float, share: float = 0.9) -> tuple[float, float]:
    """Ends of the interval of predicted bytes that holds this share of what is measured."""
    return predicted * factor((1 - share) / 2), predicted * factor((1 + share) / 2)
