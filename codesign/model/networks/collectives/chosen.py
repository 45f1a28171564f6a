"""One of several algorithms, by the plan's choice."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ....core.cost import Cost
from ....core.errors import ConfigError, suggestion
from ....core.jax_typed import asarray, where
from ...hardware import Link
from ..fabrics import ALGORITHMS, Group
from .base import AbstractCollective
from .ring import RingAllReduce
from .standing import SipacAllReduce


class Chosen(AbstractCollective):
    """The option that the plan names (`plan.tp_algorithm`, `plan.data_algorithm`), whatever else would be faster.

    What `Fastest` decides message by message is here a field of the plan, enumerated like its degrees: for a given plan
    the cost is that of one algorithm, log-convex where that is. A name that is not offered here takes the first that
    is, in the order of `ALGORITHMS`.

    Assumes: a job sets up one algorithm for all operations of an axis; never less than `Fastest` of the same options.
    """

    options: dict[str, AbstractCollective]

    def __check_init__(self) -> None:
        """Some options, under names that a plan knows."""
        if not self.options:
            raise ConfigError(f"options of Chosen is empty (name -> algorithm, names: {', '.join(ALGORITHMS)})")
        for name in self.options:
            if name not in ALGORITHMS:
                known = f"{', '.join(ALGORITHMS)}{suggestion(name, ALGORITHMS)}"
                raise ConfigError(f"options.{name} of Chosen: a plan's algorithm is one of {known}")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Cost of the plan's option."""
        return self._of_the_plan(group, lambda option: option.cost(nbytes, group, link))

    def may_round(self) -> bool:
        """True if any option may round."""
        return any(option.may_round() for option in self.options.values())

    def log_perplexity_penalty(self, group: Group) -> Array:
        """Log-perplexity penalty of the plan's option."""
        return self._of_the_plan(group, lambda option: option.log_perplexity_penalty(group))

    def _of_the_plan(self, group: Group, asked: Callable[[AbstractCollective], Any]) -> Any:
        """Evaluate `asked` on each option, and select the value of the one that the plan names."""
        offered = sorted(self.options, key=ALGORITHMS.index)
        result = asked(self.options[offered[0]])
        for name in offered[1:]:
            chosen = jnp.abs(group.algorithm - ALGORITHMS.index(name)) < 0.5
            result = where(chosen, asked(self.options[name]), result)
        return result

    @classmethod
    def example(cls) -> "Chosen":
        """An example: two algorithms."""
        return cls({"ring": RingAllReduce(), "sipac": SipacAllReduce(radix=asarray(4.0))})
