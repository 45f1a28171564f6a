"""What is emitted to make a cluster and to run it."""

from .account import Carbon as Carbon
from .account import Grid as Grid

__all__ = ["Carbon", "Grid"]
