"""Plans as points of a cube: what gradients move, and which legal plans lie near where they stop.

A field of the plan with values v_1 < ... < v_k becomes one coordinate, in log2 where all values are positive:

    log2              the real number between them; nothing is rounded until the end
    straight_through  the nearest value forward, the slope of the real number backward
    gumbel            a softmax over the k values with Gumbel noise, its temperature falling; one logit a value
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.jax_typed import asarray, zeros
from ...model.workloads.plan_fields import plan_value
from ...study.design_space import DesignSpace
from .transformations import annealed

KINDS = ("log2", "straight_through", "gumbel")
HOTTEST, COLDEST = 2.0, 0.05  # temperatures of the softmax, first and last


@dataclass(frozen=True)
class Relaxation:
    """The plan fields of a space as continuous coordinates.

    values: field -> sorted values; kind: how they are relaxed.
    """

    values: dict[str, np.ndarray]
    kind: str

    @classmethod
    def of(cls, space: DesignSpace, kind: str) -> "Relaxation":
        """Relax the plans of a space.

        Raises:
            ConfigError: an unknown kind.
        """
        if kind not in KINDS:
            raise ConfigError(f"search.relaxation = {kind!r} is not known{suggestion(kind, KINDS)}")
        listed = {name: sorted({float(plan_value(name, v)) for v in values}) for name, values in space.plan.items()}
        return cls({name: np.array(values) for name, values in listed.items()}, kind)

    @property
    def size(self) -> int:
        """Numbers that the gradient moves."""
        if self.kind == "gumbel":
            return sum(len(values) for values in self.values.values())
        return len(self.values)

    @property
    def bounded(self) -> bool:
        """True if points live in the unit cube (logits do not)."""
        return self.kind != "gumbel"

    def start(self, rng: np.random.Generator, starts: int) -> Float[np.ndarray, "starts size"]:
        """Random coordinates, or small random logits."""
        return rng.uniform(size=(starts, self.size)) if self.bounded else 0.5 * rng.normal(size=(starts, self.size))

    def fields(self, x: Float[Array, " size"], noise: Float[Array, " size"], progress: Array) -> dict[str, Array]:
        """Values of the plan's fields at coordinates x; `noise` is Gumbel's, used by that kind only."""
        if self.kind == "gumbel":
            temperature = annealed((HOTTEST, COLDEST), progress)
            return self._mixed((x + noise) / temperature)
        result: dict[str, Array] = {}
        for i, (name, values) in enumerate(self.values.items()):
            relaxed = _unscaled(values, _interpolated(values, x[i]))
            if self.kind == "straight_through":
                nearest = asarray(values)[jnp.argmin(jnp.abs(_scaled_all(values) - _interpolated(values, x[i])))]
                relaxed = relaxed + jax.lax.stop_gradient(nearest - relaxed)
            result[name] = relaxed
        return result

    def _mixed(self, logits: Array) -> dict[str, Array]:
        result, first = dict[str, Array](), 0
        for name, values in self.values.items():
            weights = jax.nn.softmax(logits[first : first + len(values)])
            result[name] = _unscaled(values, jnp.sum(weights * _scaled_all(values)))
            first += len(values)
        return result

    def settled(self, x: Float[np.ndarray, "starts size"]) -> Float[np.ndarray, "starts fields"]:
        """Final fields of each start, in scaled units (log2 where values are positive), without noise."""
        noise, end = zeros(x.shape[1]), asarray(1.0)
        relaxed = self if self.kind != "straight_through" else Relaxation(self.values, "log2")
        fields = jax.vmap(partial(relaxed.fields, noise=noise, progress=end))(asarray(x))
        columns = [_scaled(values, np.asarray(fields[name])) for name, values in self.values.items()]
        return np.stack(columns, axis=-1) if columns else np.zeros((len(x), 0))

    def nearest(
        self, settled: Float[np.ndarray, "starts fields"], plans: dict[str, np.ndarray], count: int
    ) -> np.ndarray:
        """Numbers of the legal plans nearest to where each start stopped, [starts, count]: rounding with repair."""
        if not self.values:
            return np.zeros((len(settled), 1), dtype=int)
        table = np.stack([_scaled(values, plans[name]) for name, values in self.values.items()], axis=-1)
        count = min(count, len(table))
        result = [np.argpartition(((table - row) ** 2).sum(axis=1), count - 1)[:count] for row in settled]
        return np.array(result)


def _is_log(values: np.ndarray) -> bool:
    return bool(values[0] > 0)


def _scaled(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.log2(x) if _is_log(values) else x


def _scaled_all(values: np.ndarray) -> Array:
    return asarray(_scaled(values, values))


def _unscaled(values: np.ndarray, x: Array) -> Array:
    return 2.0**x if _is_log(values) else x


def _interpolated(values: np.ndarray, x: Array) -> Array:
    ends = _scaled(values, values[[0, -1]])
    return ends[0] + (ends[1] - ends[0]) * x
