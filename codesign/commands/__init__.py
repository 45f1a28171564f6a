"""Commands of the terminal: what each does and shows; `main` runs a command line."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import api_prices, day, mixed_fleet, optimize, rederivation, simulate, simulate_fleet, simulate_forms
    from .cli import main
    from .setup import prepare_jax
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "api_prices", "day", "main", "mixed_fleet", "optimize", "prepare_jax", "rederivation", "simulate", "simulate_fleet",
    "simulate_forms",
]  # fmt: skip
