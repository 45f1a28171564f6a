"""Carbon of making a cluster and of running it."""

from .account import Carbon as Carbon
from .account import PowerGrid as PowerGrid

__all__ = ["Carbon", "PowerGrid"]
