"""What is emitted to make a cluster and to run it."""

from .account import Carbon as Carbon
from .account import PowerGrid as PowerGrid

__all__ = ["Carbon", "PowerGrid"]
