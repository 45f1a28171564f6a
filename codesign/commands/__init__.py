"""Commands of the terminal: what each does and shows; `main` runs a command line."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import api_prices as api_prices
    from . import day as day
    from . import mixed_fleet as mixed_fleet
    from . import optimize as optimize
    from . import simulate as simulate
    from . import simulate_fleet as simulate_fleet
    from . import simulate_forms as simulate_forms
    from . import told_anew as told_anew
    from .cli import main as main
    from .setup import prepare_jax as prepare_jax
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "cli": ("main",),
            "setup": ("prepare_jax",),
        },
        modules=(
            "api_prices",
            "day",
            "mixed_fleet",
            "optimize",
            "simulate",
            "simulate_fleet",
            "simulate_forms",
            "told_anew",
        ),
    )

__all__ = [
    "api_prices", "day", "main", "mixed_fleet", "optimize", "prepare_jax", "simulate", "simulate_fleet",
    "simulate_forms", "told_anew",
]  # fmt: skip
