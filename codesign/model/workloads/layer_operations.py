"""Operations of one layer on one device, forward and backward, as a short list.

A `Shard` says which part of the tensor a device holds; constructors below give the arithmetic, traffic, weights and
stored activations of the common operations. Symbols in comments: N tokens, h hidden, t tensor-parallel degree.
"""

from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.computed_once import computed_once
from ...core.fields import Module, quantity, static
from ...core.units import BYTES
from ..hardware import Work
from .number_formats import WeightFormats
from .plan import Layout

EXPANDED = ("bf16", "fp16")
"""Arithmetic that weights of fewer bits are expanded for."""


class Precision(Module):
    """Number format of each class of tensor, and of the arithmetic.

    `gradient_buffer` is the format in which one layer's whole gradients are computed before they join the (sharded)
    rest; "none": they are computed in place. `by_class` gives classes of weights formats of their own, in place of
    `weights` and, in their products, of `compute`; `checkpoint` takes those that the model was published in. Products
    in a format that the devices lack (`lacking`) are computed in `compute`, on weights expanded to it.
    """

    compute: str = static(default="bf16")
    weights: str = static(default="bf16")
    activations: str = static(default="bf16")
    gradients: str = static(default="fp32")
    gradient_buffer: str = static(default="none")
    kv_cache: str = static(default="bf16")
    attention: str = static(default="bf16")
    dispatch: str = static(default="bf16")
    by_class: WeightFormats | None = None
    checkpoint: bool = static(default=False)
    lacking: tuple[str, ...] = static(default=())

    def weight_bytes(self, operation: str) -> float:
        """Bytes of a weight of an operation, its share of scales included."""
        of_class = None if self.by_class is None else self.by_class.of(operation)
        return self.bytes_of("weights") if of_class is None else of_class.nbytes

    def product(self, operation: str) -> str:
        """Format of an operation's products, or the name of kernels of its weights' own (`hardware.ARITHMETIC`)."""
        of_class = None if self.by_class is None else self.by_class.of(operation)
        if of_class is None:
            return self.compute
        if of_class.product in ("", *self.lacking):
            return (self.compute in EXPANDED and of_class.expanding) or self.compute
        return of_class.kernel or of_class.product

    def bytes_of(self, tensor: str) -> float:
        """Bytes per element of a class of tensor."""
        number_format = getattr(self, tensor)
        return 0.0 if (tensor, number_format) == ("gradient_buffer", "none") else BYTES[number_format]


class Shard(Module):
    """The tokens one device works on, and how the layout cuts them.

    sequences x queries new tokens, each sequence attending `keys` tokens (itself included). `staged` adds a pass over
    local memory to each tensor-parallel collective (see `staging`).
    """

    layout: Layout
    precision: Precision
    sequences: Float[Array, "*b"] = quantity()
    queries: Float[Array, "*b"] = quantity()
    keys: Float[Array, "*b"] = quantity()
    decode: bool = static(default=False)
    staged: bool = static(default=False)

    @property
    @computed_once
    def tokens(self) -> Array:
        """N: new tokens in one tensor-parallel group."""
        return self.sequences * self.queries

    @property
    @computed_once
    def outside(self) -> Array:
        """Divisor of activations outside the tensor-parallel regions: t with sequence parallelism, else 1."""
        return 1 + self.layout.scattered * (self.layout.plan.tp - 1)


class BlockOp(Module):
    """One forward operation of a layer with its backward, weights and what it keeps for the backward pass.

    `per_layer` is how often an average layer runs it; `core` marks the attention core, redone under selective
    recomputation; `expert` marks weights that are divided over expert-parallel ranks. Bytes are per micro-batch:
    `stored_bytes` live from the forward to the backward pass, `working_bytes` while the layer is at work and nothing of
    it has been dropped (at least the former), `gradient_bytes` is the gradient that its backward hands on. `recomputed`
    is 1 where its forward runs again in the backward pass (`recomputation`).
    """

    name: str = static()
    kernel: str = static()
    number_format: str = static()
    forward: Work | None
    grad_input: Work | None
    grad_weight: Work | None
    weights: Float[Array, "*b"] = quantity(default=0.0)
    stored_bytes: Float[Array, "*b"] = quantity(default=0.0)
    working_bytes: Float[Array, "*b"] = quantity(default=0.0)
    gradient_bytes: Float[Array, "*b"] = quantity(default=0.0)
    per_layer: Float[Array, "*b"] = quantity(default=1.0)
    core: bool = static(default=False)
    expert: bool = static(default=False)
    recomputed: Float[Array, "*b"] = quantity(default=0.0)


class BlockComm(Module):
    """One communication of a layer: how many times in forward, backward and recomputation, and its local work.

    `element_bytes`: as of a `CommOp`, outside training.
    """

    name: str = static()
    operation: str = static()
    axis: str = static()
    nbytes: Float[Array, "*b"] = quantity()
    forward: Float[Array, "*b"] = quantity(default=0.0)
    backward: Float[Array, "*b"] = quantity(default=0.0)
    recompute: Float[Array, "*b"] = quantity(default=0.0)
    per_layer: Float[Array, "*b"] = quantity(default=1.0)
    local: Work | None = None
    element_bytes: float = static(default=0.0)


Scaled = TypeVar("Scaled", BlockOp, BlockComm)


def scaled(one: Scaled, per_layer: Array) -> Scaled:
    """An operation or communication that only so many of the layers have."""
    return eqx.tree_at(lambda o: o.per_layer, one, one.per_layer * per_layer)


def linear(
    name: str,
    shard: Shard,
    rows: Array,
    depth: Array,
    cols: Array,
    *,
    stored_bytes: Array | float = 0.0,
    working_bytes: Array | float | None = None,
) -> BlockOp:
    """[rows, depth] x [depth, cols]: 2 rows depth cols FLOPs forward, the same for each gradient."""
    act, weight = shard.precision.bytes_of("activations"), shard.precision.weight_bytes(name)
    nbytes = (rows * depth + rows * cols) * act + depth * cols * weight
    flops = 2 * rows * depth * cols
    return BlockOp(
        name=name,
        kernel="gemm",
        number_format=shard.precision.product(name),
        forward=Work(flops, nbytes, rows, cols, depth),
        grad_input=Work(flops, nbytes, rows, depth, cols),
        grad_weight=Work(flops, nbytes, depth, cols, rows),
        weights=depth * cols,
        stored_bytes=stored_bytes,
        working_bytes=stored_bytes if working_bytes is None else working_bytes,
        gradient_bytes=rows * cols * act,
    )


def elementwise(
    name: str,
    elements: Array,
    *,
    forward: tuple[float, float],
    backward: tuple[float, float],
    weight_gradient: tuple[float, float] = (0.0, 0.0),
    extra_bytes: Array | float = 0.0,
    weights: Array | float = 0.0,
    stored_bytes: Array | float = 0.0,
    working_bytes: Array | float | None = None,
    gradient_bytes: Array | float = 0.0,
    core: bool = False,
) -> BlockOp:
    """An operation that touches every element a few times.

    Args:
        forward, backward, weight_gradient: (FLOPs, bytes) per element.
        extra_bytes: traffic of the weights, in each of the passes that exist.
    """

    def work(per_element: tuple[float, float]) -> Work | None:
        flops, nbytes = per_element
        return Work(elements * flops, elements * nbytes + extra_bytes) if flops + nbytes > 0 else None

    return BlockOp(
        name=name,
        kernel="elementwise",
        number_format="vector",
        forward=work(forward),
        grad_input=work(backward),
        grad_weight=work(weight_gradient),
        weights=jnp.asarray(weights, dtype=float),
        stored_bytes=jnp.asarray(stored_bytes, dtype=float),
        working_bytes=jnp.asarray(stored_bytes if working_bytes is None else working_bytes, dtype=float),
        gradient_bytes=jnp.asarray(gradient_bytes, dtype=float),
        core=core,
    )


def norm(name: str, shard: Shard, hidden: Array, *, vectors: float = 2.0) -> BlockOp:
    """Layer normalisation of the device's share of N x h, `vectors` weight vectors (2 with bias, 1 for RMS).

    FLOPs per element forward/input gradient/weight gradient: 9 / 14 / 7. Source: [isaev2023], its operation counts.
    """
    act = shard.precision.bytes_of("activations")
    pass_bytes = 2 * act
    elements = shard.tokens * hidden / shard.outside
    return elementwise(
        name,
        elements,
        forward=(9, pass_bytes),
        backward=(14, pass_bytes),
        weight_gradient=(7, pass_bytes),
        extra_bytes=vectors * hidden * act,
        weights=vectors * hidden,
        gradient_bytes=elements * act,
    )


def branch(
    name: str,
    shard: Shard,
    hidden: Array,
    users: int,
    *,
    sharded: bool,
    stored_bytes: Array,
    working_bytes: Array | None = None,
) -> BlockOp:
    """A tensor read by several operations: free forward, their gradients are summed backward.

    The sum lies where its users' gradients do; beside it is what a sub-layer's collectives bring from the other ranks.
    """
    act, layout = shard.precision.bytes_of("activations"), shard.layout
    elements = shard.tokens * hidden / (shard.outside if sharded else 1.0)
    joined = jnp.where(layout.plan.tp > 1, elements * act * (1 + layout.scattered), 0.0) if sharded else 0.0
    return elementwise(
        name, elements, forward=(0, 0), backward=(users, (users + 1) * act),
        stored_bytes=stored_bytes, working_bytes=working_bytes, gradient_bytes=joined,
    )  # fmt: skip


def residual(name: str, shard: Shard, hidden: Array, *, dropout: bool) -> list[BlockOp]:
    """Dropout where the model trains with it (in place: one byte of mask an element), then the residual addition."""
    act = shard.precision.bytes_of("activations")
    elements = shard.tokens * hidden / shard.outside
    gradient = elements * act
    add = elementwise(
        f"{name}_residual", elements, forward=(1, 3 * act), backward=(2, 3 * act), gradient_bytes=gradient
    )
    if not dropout:
        return [add]
    masked = (1, 2 * act + 1)
    drop = elementwise(
        f"{name}_dropout", elements, forward=masked, backward=masked, stored_bytes=elements, gradient_bytes=elements
    )
    return [drop, add]


def tensor_parallel_comms(name: str, shard: Shard, hidden: Array, *, again: Array) -> list[BlockComm]:
    """Communication that joins the tensor-parallel region of one sub-layer to the rest.

    Without sequence parallelism one all-reduce in each direction; with it an all-gather and a reduce-scatter in each
    direction, and the gather once more (`again`) where its result was not kept for the backward pass.
    """
    layout = shard.layout
    element = shard.precision.bytes_of("activations")
    volume = shard.tokens * hidden * element
    sharded, full = layout.scattered, layout.full
    counts = {
        "all_reduce": (1 - sharded, 1 - sharded, full * (1 - sharded)),
        "all_gather": (sharded, sharded, again * sharded),
        "reduce_scatter": (sharded, sharded, full * sharded),
    }
    return [
        BlockComm(
            f"{name}_tp",
            operation,
            "tp",
            volume,
            *times,
            local=staging(operation, shard, hidden),
            element_bytes=element,
        )
        for operation, times in counts.items()
    ]


def staging(operation: str, shard: Shard, hidden: Array) -> Work | None:
    """Local work of a tensor-parallel collective that does not run beside its wire time, where the shard is `staged`.

    The buffer is read and written once; a reduction adds N h (t-1)/t elements. Not when recomputation repeats it.
    Source: [isaev2023].
    """
    if not shard.staged:
        return None
    tp, elements = shard.layout.plan.tp, shard.tokens * hidden
    adds = jnp.asarray(0.0) if operation == "all_gather" else elements * (tp - 1) / tp
    nbytes = jnp.where(tp > 1, 2 * elements * shard.precision.bytes_of("activations"), 0.0)
    return Work(adds, nbytes)
