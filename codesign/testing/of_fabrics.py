"""Contract of every fabric: legal links for every group, finite slopes, log-convexity in what is continuous."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..core.fields import check_ranges, replace, walk
from ..core.jax_typed import arrays, asarray, jacrev, jit
from ..jaxprs.evaluator import interpreted
from ..model.networks.fabrics import AbstractFabric, Group
from .keeping import all_finite, must

GROUPS = [Group(*arrays(n, s)) for n in (1, 2, 3, 8, 16, 300) for s in (1, 2, 8, 64)]
TIMES = 20.0  # factor around the example, up and down, within which log-convexity is looked at


def outputs(fabric: AbstractFabric, group: Group) -> Array:
    """All outputs of a fabric that are continuous in the hardware: seconds, joules, dollars, watts."""
    link = fabric.link(group)
    return jnp.stack(jnp.broadcast_arrays(
        link.alpha_s, link.beta_s_per_byte, link.energy_j_per_byte, link.reconfiguration_s,
        fabric.capex_usd(), fabric.static_power_w(), *fabric.limits().values(),
        *fabric.counts(asarray(1024.0)).values(),
    ))  # fmt: skip


slopes = interpreted(jacrev(outputs, argnums=(0, 1)))


def legal_and_sensible_for_every_group(fabric: AbstractFabric) -> None:
    """Numbers in their ranges, at least one device within reach, nothing negative."""
    check_ranges(fabric)
    must(fabric.reach() >= 1, "reach() is less than one device")
    for group in GROUPS:
        link = fabric.link(group)
        must(link.beta_s_per_byte > 0, "link() has no time per byte")
        must([float(leaf) >= 0 for leaf in jax.tree.leaves(link)], "link() has a negative number")
    must(fabric.capex_usd() >= 0, "capex_usd() is negative")
    must(fabric.static_power_w() >= 0, "static_power_w() is negative")


def background_traffic_never_helps(fabric: AbstractFabric) -> None:
    """A loaded link is no faster."""
    for group in GROUPS:
        loaded = fabric.link(Group(group.size, group.stride, asarray(1e9)))
        must(loaded.beta_s_per_byte >= fabric.link(group).beta_s_per_byte, "others on the link make it faster")


def finite_slopes_in_every_leaf_and_in_the_group(fabric: AbstractFabric) -> None:
    """Searches go along them."""
    for group in GROUPS[::5]:
        must(all_finite(slopes(fabric, group)), f"slopes are not finite for a group of {float(group.size):g}")


def jit_and_vmap_equal_the_plain_call(fabric: AbstractFabric) -> None:
    """All groups at once."""

    def stacked(*leaves: Array) -> Array:
        return jnp.stack(leaves)

    groups = jax.tree.map(stacked, *GROUPS)
    together = jit(jax.vmap(outputs, in_axes=(None, 0)))(fabric, groups)
    must(np.isclose(together, [outputs(fabric, g) for g in GROUPS], rtol=1e-12), "one group alone has another link")


PROMISES = (
    legal_and_sensible_for_every_group, background_traffic_never_helps, finite_slopes_in_every_leaf_and_in_the_group,
    jit_and_vmap_equal_the_plain_call,
)  # fmt: skip


@cache
def _by_logs(cls: type[AbstractFabric]) -> tuple[Array, Callable[..., Array]]:
    """(logs of the leaves that move, (point, group) -> outputs) of an example; compiled once for all groups."""
    example: Any = cls.example()
    values = {path: float(value) for path, _, value in walk(example)}
    moves = np.array([value > 0 and not any(whole in path for whole in cls.whole) for path, value in values.items()])
    given = asarray(list(values.values()))

    @jit
    def priced(point: Array, group: Group) -> Array:
        moved = jnp.where(moves, jnp.exp(point), given)
        return outputs(replace(example, dict(zip(values, moved, strict=True))), group) + 1e-30

    return jnp.log(jnp.where(moves, given, 1.0)), priced


def log_convex_in_every_continuous_leaf(cls: type[AbstractFabric], group: Group, seed: int) -> None:
    """Leaves around the example, up and down; whole numbers, which decide the group's path, stay."""
    start, priced = _by_logs(cls)
    rng = np.random.default_rng(seed)
    a, b = (start + np.log(TIMES) * asarray(rng.uniform(-1, 1, len(start))) for _ in range(2))
    middle, ends = jnp.log(priced((a + b) / 2, group)), (jnp.log(priced(a, group)) + jnp.log(priced(b, group))) / 2
    must(middle - ends < 1e-9, "not log-convex in its continuous numbers (name whole ones in `whole`)")
