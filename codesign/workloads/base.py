"""What a workload must answer."""

import abc

import equinox as eqx
from jaxtyping import Array

from .blocks import Precision
from .ops import Op
from .plan import Layout
from .schedule import Priced, Timeline
from .transformer import Transformer


class AbstractWorkload(eqx.Module):
    """A job: lowers a layout to operations, and says what it keeps in memory."""

    model: eqx.AbstractVar[Transformer]
    precision: eqx.AbstractVar[Precision]

    @abc.abstractmethod
    def lower(self, layout: Layout) -> tuple[Op, ...]:
        """Everything one device does; counts as in `ops`."""

    @abc.abstractmethod
    def number_format(self) -> str:
        """Format of the arithmetic, whose dense peak is the denominator of MFU."""

    @abc.abstractmethod
    def timeline(self, priced: Priced, layout: Layout) -> Timeline:
        """Compose the priced operations into the time, breakdown and energy of one step or batch."""

    @abc.abstractmethod
    def repeats(self, layout: Layout) -> dict[str, Array]:
        """Phase -> how often one device runs the operations of that phase in one step or batch."""

    @abc.abstractmethod
    def footprint(self, layout: Layout) -> dict[str, tuple[Array, Array]]:
        """Class of data -> (bytes per device, the part of them that stays in tier 1 if the class is offloaded)."""

    @abc.abstractmethod
    def violations(self, layout: Layout) -> dict[str, Array]:
        """Rules of the layout -> relative violation, 0 where it holds: a plan that does not divide is not legal."""
