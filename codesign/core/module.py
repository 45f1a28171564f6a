"""Base of the classes that are pytrees."""

import equinox as eqx


class Module(eqx.Module):
    """An Equinox module whose methods are Python's own.

    Equinox makes a pytree of each method that is asked for, some twenty microseconds a call: a seventh of a trace. Ours
    are called, not handed over as trees.
    """

    __getattribute__ = object.__getattribute__
