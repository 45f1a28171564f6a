"""Optax by name: an optimizer, and transformations of the gradient before it; loaded by searches that descend alone."""

import inspect
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...core.errors import ConfigError, suggestion

OPTIMIZERS = (
    "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad", "fromage",
    "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2", "optimistic_gradient_descent", "radam",
    "rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi",
)  # fmt: skip
TRANSFORMATIONS = (
    "adaptive_grad_clip", "add_decayed_weights", "centralize", "clip", "clip_by_block_rms", "clip_by_global_norm",
    "ema", "normalize_by_update_norm", "scale", "scale_by_adam", "scale_by_belief", "scale_by_lion", "scale_by_rms",
    "scale_by_sign", "scale_by_trust_ratio", "trace", "zero_nans",
)  # fmt: skip
NO_SCHEDULE = ("rprop", "sm3")  # take a constant step only


def _made(key: str, name: str, *args: Any, **options: Any) -> Any:
    """A transformation of Optax with these options.

    Raises:
        ConfigError: an option that it does not have.
    """
    factory = getattr(import_module("optax"), name)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise ConfigError(f"{key}.options.{option}: {name} has no such option{suggestion(option, known)}")
    try:
        return factory(*args, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}.options: {name}: {str(error).splitlines()[0]}") from error


def annealed(ends: tuple[float, float], progress: Any) -> Any:
    """From the first to the last number, by equal factors, as progress goes from 0 to 1."""
    return ends[0] * (ends[1] / ends[0]) ** progress


def moved(at: Any, updates: Any) -> Any:
    """Point after the optimizer's updates."""
    return import_module("optax").apply_updates(at, updates)


def segment(steps: int, parts: int = 10) -> int:
    """Steps of one compiled call: a divisor of all of them, short enough for a search to report and be interrupted."""
    return max(length for length in range(1, max(steps // parts, 1) + 1) if steps % length == 0)


@dataclass(frozen=True)
class Transformation:
    """One transformation of the gradient, such as `clip_by_global_norm` with `max_norm: 1.0`."""

    name: str
    options: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        """Only names from the list: a configuration may not reach arbitrary code."""
        if self.name not in TRANSFORMATIONS:
            hint = suggestion(self.name, TRANSFORMATIONS)
            raise ConfigError(f"search.optimizer.before.name = {self.name!r} is not known{hint}")
        self.build()

    def build(self) -> Any:
        """The `optax.GradientTransformation`."""
        return _made("search.optimizer.before", self.name, **self.options)


@dataclass(frozen=True)
class Optimizer:
    """An Optax optimizer by name; `options` go to its constructor, `before` runs on the gradient first."""

    name: str = "adam"
    learning_rate: float = 0.05
    options: dict[str, float] = field(default_factory=dict[str, float])
    before: tuple[Transformation, ...] = ()

    def __post_init__(self) -> None:
        """Only names from the list: a configuration may not reach arbitrary code."""
        if self.name not in OPTIMIZERS:
            raise ConfigError(f"search.optimizer.name = {self.name!r} is not known{suggestion(self.name, OPTIMIZERS)}")
        if not self.learning_rate > 0:
            raise ConfigError(f"search.optimizer.learning_rate = {self.learning_rate} must be positive")
        if self.options:  # each of them can be made with none
            self.build(1)

    def build(self, steps: int) -> Any:
        """The chain, an `optax.GradientTransformation`, its step decaying by a cosine over the run."""
        optax = import_module("optax")
        schedule: Any = optax.cosine_decay_schedule(self.learning_rate, steps, alpha=0.02)
        rate = self.learning_rate if self.name in NO_SCHEDULE else schedule
        last = _made("search.optimizer", self.name, rate, **self.options)
        return optax.chain(*(part.build() for part in self.before), last) if self.before else last
