"""Common base of all ways to serve a transformer."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.errors import ConfigError
from ...core.smooth import at_least, ceil, maximum
from ...core.units import GB
from .base import SERVING, AbstractWorkload, FamilyVocabulary, Moments
from .broken_rules import broken
from .engine_memory import EngineMemory, ProfileRun, layer_peak_bytes
from .feed_forward import MixtureOfExperts
from .layer_operations import BlockOp, Precision
from .lowering import held_by_class, module_bytes
from .plan import Layout
from .transformer import Transformer

OF_TRAINING = (
    *(
        "virtual_stages",
        "ulysses",
        "capacity_factor",
        "cp_order",
        "recompute",
        "recompute_share",
        "recompute_modules",
        "zero",
        "reduce_grads_every_microbatch",
        "dp_overlap",
        "partition_activations",
        "sequence_parallel_regather",
    ),
    *("offload_activations", "offload_modules", "offload_optimizer", "offload_gradients"),
)
"""Fields of a plan that say how gradients, optimizer and the backward pass are kept: what serves has none of it."""


class AbstractServing(AbstractWorkload):
    """Requests of `input_tokens` and `images`, answered with `output_tokens`.

    An image brings the tokens of the model's vision encoder (`VisionEncoder.tokens_per_image`) into the prompt.
    """

    words: ClassVar[FamilyVocabulary] = SERVING

    model: eqx.AbstractVar[Transformer]
    input_tokens: eqx.AbstractVar[Float[Array, "*b"]]
    output_tokens: eqx.AbstractVar[Float[Array, "*b"]]
    images: eqx.AbstractVar[Float[Array, "*b"]]
    request_overhead_s: eqx.AbstractVar[Float[Array, "*b"]]
    prompt_token_s: eqx.AbstractVar[Float[Array, "*b"]]
    expert_overhead_s: eqx.AbstractVar[Float[Array, "*b"]]
    expert_launch_s: eqx.AbstractVar[Float[Array, "*b"]]
    engine_memory: eqx.AbstractVar[EngineMemory]
    precision: eqx.AbstractVar[Precision]
    workspace_bytes: eqx.AbstractVar[Float[Array, "*b"]]

    def number_format(self) -> str:
        """Format of the matrix products."""
        return self.precision.compute

    def prompt_tokens(self) -> Array:
        """Tokens of a whole prompt: its text, and what its images are to the language model."""
        vision = self.model.vision
        return self.input_tokens if vision is None else self.input_tokens + self.images * vision.tokens_per_image()

    def images_of(self, tokens: Array) -> Array | None:
        """Images among so many prompt tokens; none of a model that sees none."""
        return None if self.model.vision is None else tokens * (self.images / self.prompt_tokens())

    def encoder_flops(self) -> Array | float:
        """FLOPs of a vision encoder on the images of one whole prompt."""
        vision = self.model.vision
        return 0.0 if vision is None else self.images * vision.flops_per_image()

    @computed_once
    def layers_per_stage(self, layout: Layout) -> Array:
        """Layers of the fullest stage."""
        return ceil(self.model.layers / layout.plan.pp)

    @abc.abstractmethod
    def weight_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of an average layer, with the weights that a device holds of it."""

    def held_weights(self, layout: Layout) -> dict[str, Array]:
        """Class of weights -> bytes of the fullest stage on one device; "" for what has no class."""
        layers = self.layers_per_stage(layout)
        result = held_by_class(self.weight_block(layout), layers, self.model, self.precision, layout.plan)
        for name, nbytes in self.loaded_ahead(layout).items():
            result[name] = result.get(name, 0.0) + nbytes
        return result

    def module_block(self, layout: Layout) -> list[BlockOp]:
        """Operations of a module that predicts ahead where the model drafts with its own; none else."""
        del layout
        return []

    def loaded_ahead(self, layout: Layout) -> dict[str, Array]:
        """Class of weights -> bytes of such modules on one device."""
        block = self.module_block(layout)
        return module_bytes(block, self.model, self.precision, layout.plan) if block else {}

    def engine_bytes(self, block: list[BlockOp], tokens: Array, rows: Array) -> dict[str, Array]:
        """Working memory and captured graphs of an engine.

        Args:
            block: operations of an average layer on the tokens of its profile run.
            tokens: of that run.
            rows: sequences that the plan has an engine sample at a time.
        """
        engine, hidden = self.engine_memory, self.model.hidden * self.precision.bytes_of("activations") * tokens
        sampled = engine.rows(rows, tokens)
        run = ProfileRun(tokens, sampled, layer_peak_bytes(block, hidden), hidden, sampled * self.model.vocab)
        return {
            "working": engine.working_bytes(run) + self.workspace_bytes,
            "graphs": engine.graphs_bytes(rows),
        }

    def moments_of(self, parts: Mapping[str, tuple[Array, Array]], decode_block: list[BlockOp], rows: Array) -> Moments:
        """Memory contents when an engine has loaded, sizes its activations, prefills and decodes.

        Args:
            parts: see `footprint`.
            decode_block: operations of an average layer on one token of each row.
            rows: sequences that are sampled together.
        """
        weights, working = {"weights": parts["weights"]}, {"working": parts["working"]}
        at_work = weights | {"kv_cache": parts["kv_cache"], "graphs": parts["graphs"]}
        least = jnp.minimum(self.engine_bytes(decode_block, rows, rows)["working"], parts["working"][0])
        return {
            "load": weights,
            "profile run": weights | working,
            "prefill": at_work | working,
            "decode": at_work | {"working": (least, least)},
        }

    def two_layers(self, layout: Layout) -> Array:
        """Share of a stage's layers that a buffer of two is."""
        return jnp.minimum(2 / at_least(self.layers_per_stage(layout), 1.0), 1.0)

    def first_overhead_s(self) -> Array:
        """The host's time of a request to its first step where nothing hides it: at a rate an upper bound."""
        return self.received_s() + self.issuing_s()

    def first_s(self, worked: Array) -> Array:
        """To the first token where accelerators take `worked` to it, behind which a prompt's launches are issued."""
        return self.received_s() + maximum(worked, self.issuing_s())

    def received_s(self) -> Array:
        """The host's time of a request before its first step: of any, and of each token of its prompt."""
        return self.request_overhead_s + self.prompt_token_s * self.prompt_tokens()

    def issuing_s(self) -> Array:
        """The host's time to issue the launches of a prompt to every expert of every layer; none without experts."""
        network = self.model.feed_forward
        if not isinstance(network, MixtureOfExperts):
            return jnp.zeros_like(self.expert_overhead_s)
        routed = network.experts * (1 - network.dense_share(self.model.layers)) * self.model.layers
        return self.expert_overhead_s + self.expert_launch_s * routed

    def broken_rule(self, rule: str, layout: Layout) -> str | None:
        """A transformer's."""
        return broken(self, rule, layout)

    def check_lists(self, listed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse to vary what only training has: each plan would come back once for each value.

        Raises:
            ConfigError: the fields, spaces of plans that serve, and how to leave them out.
        """
        super().check_lists(listed)
        wrong = [name for name in OF_TRAINING if len(listed.get(name, ())) > 1]
        if wrong:
            without = " ".join(f"'~space.plan.{name}'" for name in wrong)
            raise ConfigError(
                f"space.plan.{wrong[0]} lists {len(listed[wrong[0]])} values, but serving has none of it: choose"
                f" space=serving_plans, continuous_plans or serving_chip, or leave out {without}"
            )

    def hopeless(self, layout: Layout, capacity: dict[str, float]) -> str | None:
        """One request that does not fit on all devices together, and by how much."""
        weights = float(self.model.stored_bytes(self.precision))
        one, tokens = jnp.asarray(1.0), self.prompt_tokens() + self.output_tokens
        cache = float(self.model.attention.cache_bytes(tokens, one, self.precision) * self.model.layers)
        devices = float(layout.devices)
        lacks = weights + cache - devices * capacity["hbm"]
        if lacks <= 0:
            return None
        return (
            f"one request of {float(tokens):g} tokens fits nowhere: at"
            f" plan.micro_batch = 1 weights {weights / GB:.1f} GB and key-value cache {cache / GB:.1f} GB exceed the"
            f" memory of {devices:g} devices by {lacks / GB:.1f} GB"
        )
