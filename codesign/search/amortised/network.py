"""The network of `amortised`."""

import flax.linen as nn
from jaxtyping import Array

WIDTH = 192  # of the hidden layers, which the shipped weights have


class Network(nn.Module):
    """Features of a study -> logits of hardware and scores, of plan values and their pairs (`Shape.split`)."""

    outputs: int

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """[..., features] -> [..., outputs]."""
        hidden = nn.gelu(nn.Dense(WIDTH)(features))
        hidden = nn.gelu(nn.Dense(WIDTH)(hidden))
        return nn.Dense(self.outputs)(hidden)
