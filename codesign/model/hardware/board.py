"""A board at work: what its clocks draw, and what a lower limit on its power costs in time."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import asarray
from ...core.module import Module
from ...core.smooth import at_least, maximum, used_share

LEAST_W = 1e-3  # left for kernels where idle power takes all of a limit: see `limits`


class AbstractBoard(Module):
    """Power model of a board: what it draws beyond its idle power while kernels run, and which limit it keeps."""

    working_w: eqx.AbstractVar[Float[Array, "*b"]]
    rated_w: eqx.AbstractVar[Float[Array, "*b"]]

    def drawn_j(self, seconds: Array, joules: Array) -> Array:
        """Joules beyond idle power of a kernel at rated clocks."""
        return joules + self.working_w * seconds

    def most_j(self, seconds: Array, idle_w: Array) -> Array:
        """Joules beyond idle power that the rated limit allows in so long a step."""
        return at_least(self.rated_w - idle_w, LEAST_W) * seconds

    @abc.abstractmethod
    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """Seconds of a kernel, and joules beyond idle power.

        Args:
            seconds: as measured, positive.
            joules: of arithmetic and traffic.
            idle_w: of the board, watts.
        """

    @abc.abstractmethod
    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the limit that an idle board takes: beyond one no clock keeps it."""


class Board(AbstractBoard):
    """Board that draws power beyond idle while kernels run; over a step it never draws more than `rated_w`.

    A kernel of t seconds and E joules of arithmetic and traffic takes E + working_w t joules, a whole step of T seconds
    at most (rated_w - idle) T: a board evens out what it draws over milliseconds, longer than kernels and shorter than
    steps.

    Assumes: kernel times were measured under the same limit, so that none of them is slower for it.
    Source: fitted by `codesign calibrate` on boards that serve ([mlenergy2025]); `conf/calibration/power`.
    """

    working_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="beyond idle power while kernels run, before arithmetic and traffic"
    )
    rated_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="limit of the board, memory included")

    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """The seconds that were measured, and clocks beside arithmetic and traffic."""
        del idle_w
        return seconds, self.drawn_j(seconds, joules)

    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the limit that an idle board takes: beyond one no clock keeps it."""
        return {"board_power": used_share(idle_w, self.rated_w)}

    @classmethod
    def example(cls) -> "Board":
        """200 W of clocks, 700 W in all."""
        return cls(asarray(200.0), asarray(700.0))


class CappedBoard(AbstractBoard):
    """A board whose power is limited to `limit_w`: its clocks fall until it keeps it.

    With D = min(E + working_w t, (rated_w - idle) t) of a kernel at rated clocks, and B = limit_w - idle power:

        t' = max(t, (t^2 D / B)^(1/3))       E' = min(D, B t')

    Dynamic power is f V^2, and voltage follows the clock, so the clock falls with the cube root of B over what would be
    drawn, and energy with its two thirds.

    Assumes: all of a kernel's time follows the clock (that of traffic does not: too long for what memory bounds, which
    seldom meets the limit); voltage follows the clock as far down as asked; each kernel keeps the lower limit by
    itself. The minima take a proof's curvature from times and energies.
    Source: switching power; tests/test_board.py holds the exponent against one chip on boards of two limits.
    """

    working_w: Float[Array, "*b"] = quantity(
        default=0.0, doc="beyond idle power while kernels run, before arithmetic and traffic"
    )
    rated_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="limit of the board, memory included")
    limit_w: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="of the board, memory included")

    def at_work(self, seconds: Array, joules: Array, idle_w: Array) -> tuple[Array, Array]:
        """Seconds of a kernel under the limit, and joules beyond idle power; as `Board.at_work`."""
        dynamic = jnp.minimum(self.drawn_j(seconds, joules), self.most_j(seconds, idle_w))
        budget = at_least(self.limit_w - idle_w, LEAST_W)
        slowed = maximum(seconds, (seconds**2 * at_least(dynamic, 1e-30) / budget) ** (1 / 3))
        return slowed, jnp.minimum(dynamic, budget * slowed)

    def limits(self, idle_w: Array) -> dict[str, Array]:
        """Share of the lower limit that an idle board takes."""
        return {"board_power": used_share(idle_w, self.limit_w)}

    @classmethod
    def example(cls) -> "CappedBoard":
        """An example: a 700 W board capped at 500 W."""
        return cls(asarray(200.0), asarray(700.0), asarray(500.0))
