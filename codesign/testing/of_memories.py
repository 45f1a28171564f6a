"""Contract of every memory: answers for every class of data, nothing negative, finite slopes."""

import jax.numpy as jnp
from jaxtyping import Array

from ..core.fields import check_ranges
from ..core.jax_typed import asarray, jacrev
from ..jaxprs.evaluator import interpreted
from ..model.hardware import AbstractMemory
from .keeping import all_finite, must

STORED = {"weights": 4e10, "kv_cache": 1e10}
MOVED = 1e6


def answers(memory: AbstractMemory) -> dict[str, Array]:
    """All values that a scenario asks of a memory, by name."""
    stored = {name: asarray(nbytes) for name, nbytes in STORED.items()}
    told = {"usable_bytes()": memory.usable_bytes(), "price_usd()": memory.price_usd()}
    told |= {"static_power_w()": memory.static_power_w(), "peak_power_w()": memory.peak_power_w()}
    for name in ("", *STORED):
        told |= {f"bandwidth({name!r})": memory.bandwidth(name), f"energy({name!r})": memory.energy(name)}
        told[f"added_bytes({name!r})"] = memory.added_bytes(asarray(MOVED), name)
    told |= {f"edge_bytes_per_s()[{name!r}]": rate for name, rate in memory.edge_bytes_per_s().items()}
    return told | {f"limits()[{name!r}]": share for name, share in memory.limits(stored).items()}


_slopes = interpreted(jacrev(answers), always=True)


def answers_are_numbers_that_make_sense(memory: AbstractMemory) -> None:
    """Finite, none negative, bandwidths positive."""
    check_ranges(memory)
    for name, value in answers(memory).items():
        must(jnp.isfinite(value) & (value >= 0), f"{name} is {float(value):g}")
        must(value > 0 or not name.startswith("bandwidth"), f"{name} is not positive")


def finite_slopes(memory: AbstractMemory) -> None:
    """Check that slopes in every number of the memory are finite."""
    must(all_finite(_slopes(memory)), "slopes are not finite")


PROMISES = (answers_are_numbers_that_make_sense, finite_slopes)
