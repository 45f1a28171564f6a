"""Training that knows how much will be served: smaller models, trained for longer.

    F = 6 N D + 2 N D_served     least at a loss L(N, D) that is given

Source: [sardana2023] equation 3.
"""

import math
from typing import NamedTuple

from codesign.model.scaling_laws import DenseLaw

HALVINGS = 200  # of the logarithm of the parameters
WIDEST = 1e8  # least parameters over those without which no data reach the loss, and most


class Lifetime(NamedTuple):
    """A model that reaches a loss: parameters, tokens it is trained on, FLOP over its life."""

    parameters: float
    tokens: float
    flops: float


def tokens_for(law: DenseLaw, parameters: float, loss: float, factor: float = 1.0) -> float:
    """Tokens after which a dense model reaches a loss; infinite where none suffice.

    factor: of its shape, as `ShapeCorrection` has it; 1 at the best one.
    """
    of_size = factor * float(law.parameters_scale) * parameters ** -float(law.parameters_power)
    left = loss - float(law.entropy) - of_size
    return (float(law.tokens_scale) / left) ** (1 / float(law.tokens_power)) if left > 0 else math.inf


def lifetime_of(law: DenseLaw, parameters: float, loss: float, served: float) -> Lifetime:
    """Of this many parameters."""
    tokens = tokens_for(law, parameters, loss)
    return Lifetime(parameters, tokens, 6 * parameters * tokens + 2 * parameters * served)


def least_flops(law: DenseLaw, loss: float, served: float) -> Lifetime:
    """The model of a given loss that takes the fewest FLOP to train and to serve `served` tokens.

    FLOP are a sum of products of powers along the line of equal loss, with one least: thirds of the logarithm close in.
    """
    least = (float(law.parameters_scale) / (loss - float(law.entropy))) ** (1 / float(law.parameters_power))
    low, high = math.log(least) + 1e-9, math.log(least * WIDEST)
    for _ in range(HALVINGS):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if lifetime_of(law, math.exp(a), loss, served).flops < lifetime_of(law, math.exp(b), loss, served).flops:
            high = b
        else:
            low = a
    return lifetime_of(law, math.exp(0.5 * (low + high)), loss, served)
