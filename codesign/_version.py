"""Version of this package, stated nowhere else."""

__version__ = "0.2.0"
