"""Other people's searches, all asking the same vectorised evaluator; each runs until the trial says it is over."""

import abc
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ...core.errors import ConfigError
from ...core.examples import by_default
from .trial import Trial

MAX_SEED = 2**31 - 1


def package(name: str, module: str = "") -> Any:
    """An optional package, imported when it is needed.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module or name)
    except ImportError as error:
        raise ConfigError(f"this search needs {name}: pip install 'codesign[peers]'") from error


class AbstractBlackboxOptimizer(abc.ABC):
    """A search over a box.

    `batch` is how many points it asks for at once; `many` whether it takes several goals.
    """

    name: ClassVar[str]
    many: ClassVar[bool] = False
    batch: int

    @classmethod
    def example(cls) -> "AbstractBlackboxOptimizer":
        """A small one, which contracts run."""
        return by_default(cls)

    @abc.abstractmethod
    def minimise(self, trial: Trial, seed: int) -> None:
        """Ask the trial until it raises `Exhausted`."""

    def ready(self) -> None:
        """Refuse now what would fail later.

        Raises:
            ConfigError: bad settings, or a package that is absent.
        """
        if self.batch < 4:
            raise ConfigError(f"search.optimizer.batch = {self.batch} must be at least 4")


@dataclass(frozen=True)
class Random(AbstractBlackboxOptimizer):
    """Points anywhere in the box."""

    batch: int = 4096
    name: ClassVar[str] = "random"

    def minimise(self, trial: Trial, seed: int) -> None:
        """Uniformly distributed points, for ever."""
        rng, width = np.random.default_rng(seed), len(trial.evaluator.box.names)
        while True:
            trial.prices(rng.uniform(size=(self.batch, width)))


@dataclass(frozen=True)
class DifferentialEvolution(AbstractBlackboxOptimizer):
    """SciPy's differential evolution on log variables with an exact penalty; begins anew where it has converged.

    Args:
        batch: members of the population.
        penalty: price of a unit of log-violation; must exceed the sum of the multipliers.
        strategy, mutation, recombination: as SciPy names them.
    """

    batch: int = 256
    penalty: float = 8.0
    strategy: str = "best1bin"
    mutation: tuple[float, float] = (0.5, 1.0)
    recombination: float = 0.7
    name: ClassVar[str] = "differential evolution"

    def minimise(self, trial: Trial, seed: int) -> None:
        """Runs from fresh populations, for ever."""
        rng, width = np.random.default_rng(seed), len(trial.evaluator.box.names)

        def losses(x: np.ndarray) -> np.ndarray:
            return trial.losses(x.T, self.penalty)

        while True:
            scipy.optimize.differential_evolution(
                losses, [(0.0, 1.0)] * width, vectorized=True, updating="deferred",
                polish=False, maxiter=100_000, tol=1e-4, strategy=self.strategy, mutation=tuple(self.mutation),
                recombination=self.recombination, rng=rng, init=rng.uniform(size=(self.batch, width)),
            )  # fmt: skip

    @classmethod
    def example(cls) -> "DifferentialEvolution":
        """Eight at a time."""
        return cls(batch=8)


@dataclass(frozen=True)
class CmaEs(AbstractBlackboxOptimizer):
    """CMA-ES with margin (`cmaes.CMAwM`), restarted with twice the population where it stops (IPOP).

    Plan fields are its integers; hardware coordinates are folded back into the box.

    Args:
        batch: first population.
        penalty: price of a unit of log-violation.
        sigma: first step, in units of the box.
        max_population: largest population.
    """

    batch: int = 32
    penalty: float = 8.0
    sigma: float = 0.3
    max_population: int = 1024
    name: ClassVar[str] = "cma-es"

    def ready(self) -> None:
        """Settings and package."""
        super().ready()
        package("cmaes")

    def minimise(self, trial: Trial, seed: int) -> None:
        """Restarts from random means, for ever."""
        cmaes, rng, sizes = package("cmaes"), np.random.default_rng(seed), np.array(trial.evaluator.box.sizes)
        width, population = len(trial.evaluator.box.names), self.batch
        # integers in units of their own range too, so that one sigma suits all
        steps = np.concatenate([1.0 / np.maximum(sizes - 1, 1), np.zeros(width - len(sizes))])
        free = np.tile([-np.inf, np.inf], (width - len(sizes), 1))
        bounds = np.concatenate([np.tile([0.0, 1.0], (len(sizes), 1)), free])
        while True:
            search = cmaes.CMAwM(
                mean=rng.uniform(0.2, 0.8, width), sigma=self.sigma, bounds=bounds, steps=steps,
                seed=int(rng.integers(MAX_SEED)), population_size=population,
            )  # fmt: skip
            while not search.should_stop():
                samples, standardised = zip(*(search.ask() for _ in range(population)), strict=True)
                loss = trial.losses(self._unit(np.array(samples), sizes), self.penalty)
                search.tell([(x, float(value)) for x, value in zip(standardised, loss, strict=True)])
            population = min(2 * population, self.max_population)

    def _unit(self, x: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Integers to the middle of their part of the range, the rest folded into [0, 1]."""
        count = len(sizes)
        folded = np.abs((x[:, count:] + 1.0) % 2.0 - 1.0)
        places = np.round(x[:, :count] * np.maximum(sizes - 1, 1))
        return np.concatenate([(places + 0.5) / sizes, folded], axis=1)

    @classmethod
    def example(cls) -> "CmaEs":
        """Eight at a time."""
        return cls(batch=8)


@dataclass(frozen=True)
class Nsga2(AbstractBlackboxOptimizer):
    """pymoo's NSGA-II with its own handling of constraints; one goal or several.

    Args:
        batch: population.
    """

    batch: int = 128
    name: ClassVar[str] = "nsga-ii"
    many: ClassVar[bool] = True

    def ready(self) -> None:
        """Settings and package."""
        super().ready()
        package("pymoo", "pymoo.algorithms.moo.nsga2")

    def minimise(self, trial: Trial, seed: int) -> None:
        """One run, for ever."""
        nsga2 = package("pymoo", "pymoo.algorithms.moo.nsga2").NSGA2(pop_size=self.batch)
        space = package("pymoo", "pymoo.core.problem").Problem(
            n_var=len(trial.evaluator.box.names), n_obj=len(trial.evaluator.goals), n_ieq_constr=1, xl=0.0, xu=1.0
        )
        nsga2.setup(space, termination=("n_gen", 10**9), seed=seed % MAX_SEED, verbose=False)
        while True:
            population = nsga2.ask()
            goals, violation = trial.prices(population.get("X"))
            population.set(F=np.where(np.isfinite(goals), goals, 1e3), G=np.minimum(violation, 1e3)[:, None])
            for individual in population:
                individual.evaluated |= {"F", "G"}
            nsga2.tell(infills=population)

    @classmethod
    def example(cls) -> "Nsga2":
        """Eight at a time."""
        return cls(batch=8)


@dataclass(frozen=True)
class Tpe(AbstractBlackboxOptimizer):
    """Optuna's tree-structured Parzen estimator, asked in batches.

    Args:
        batch: trials asked for at once; the estimator only learns between batches.
        penalty: price of a unit of log-violation.
        multivariate: whether its estimators see variables together.
    """

    batch: int = 16
    penalty: float = 8.0
    multivariate: bool = True
    name: ClassVar[str] = "optuna tpe"

    def ready(self) -> None:
        """Settings and package."""
        super().ready()
        package("optuna")

    def minimise(self, trial: Trial, seed: int) -> None:
        """One study, for ever."""
        optuna, box = package("optuna"), trial.evaluator.box
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sizes, names = box.sizes, box.names
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=self.multivariate, constant_liar=True)
        study = optuna.create_study(sampler=sampler)
        integer, real = optuna.distributions.IntDistribution, optuna.distributions.FloatDistribution
        ranges = {n: integer(0, sizes[i] - 1) if i < len(sizes) else real(0.0, 1.0) for i, n in enumerate(names)}
        width = np.array([*sizes, *[1.0] * (len(names) - len(sizes))])
        middle = np.array([0.5] * len(sizes) + [0.0] * (len(names) - len(sizes)))
        while True:
            trials = [study.ask(ranges) for _ in range(self.batch)]
            x = np.array([[one.params[name] for name in names] for one in trials])
            for one, loss in zip(trials, trial.losses((x + middle) / width, self.penalty), strict=True):
                study.tell(one, float(loss))

    @classmethod
    def example(cls) -> "Tpe":
        """Four at a time."""
        return cls(batch=4)
