"""Which release this is: the one place."""

__version__ = "0.1.0"
