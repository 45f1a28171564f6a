"""Which release this is: the one place."""

__version__ = "0.2.0"
