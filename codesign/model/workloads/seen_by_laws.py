"""Transformer as laws of quality see it."""

import jax.numpy as jnp
from jaxtyping import Array

from ..scaling_laws import Bits, Trained
from ..scaling_laws.base import AS_TRAINED
from .feed_forward import MixtureOfExperts
from .transformer import Transformer


def seen_by_laws(model: Transformer, tokens: Array, bits: Bits, served_bits: float = AS_TRAINED) -> Trained:
    """Counts of a model trained on so many tokens in numbers of so many bits, its weights rounded to `served_bits`."""
    one, forward = jnp.asarray(1.0), model.feed_forward
    sparse = isinstance(forward, MixtureOfExperts)
    return Trained(
        parameters=model.parameters(),
        active=model.active_parameters() + model.vocab * model.hidden * (1 - model.tied_embeddings),
        inner=model.inner_parameters(),
        tokens=tokens,
        expansion=forward.experts / forward.top_k if sparse else one,
        granularity=forward.top_k if sparse else one,
        bits=bits,
        served_bits=served_bits,
        width=model.hidden,
        depth=model.layers,
    )
