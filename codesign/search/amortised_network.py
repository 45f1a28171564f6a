"""The network of `amortised`."""

import flax.linen as nn

WIDTH = 128


class Network(nn.Module):
    """Features of a study -> degrees and hardware in [0, 1] (logits), and logits of the categories."""

    outputs: int

    @nn.compact
    def __call__(self, features):
        """[..., features] -> [..., outputs]."""
        hidden = nn.gelu(nn.Dense(WIDTH)(features))
        hidden = nn.gelu(nn.Dense(WIDTH)(hidden))
        return nn.Dense(self.outputs)(hidden)
