"""Float64 on the CPU, a compile cache shared by all workers, run-time checked shapes, repeatable examples."""

import functools
import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX is imported, and for the processes that tests start
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
if version("jaxlib").startswith("0.10."):  # halves the time of compiling; later ones abort at a flag they lack
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).resolve().parent.parent / ".cache")  # not that of whoever runs them
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of these would compile the whole package anew

import hypothesis
import jax
import pytest
import tiers

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", str(CACHE / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

gc.freeze()  # imported modules stay
gc.set_threshold(100_000, 50, 100)  # traces make many objects that stay, which are looked through less often

hypothesis.settings.register_profile("codesign", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("codesign")


OF_EXPERIMENTS = {"test_claims_recomputed.py", "test_conf.py", "test_staging.py", "test_proofs.py"}


@functools.cache
def experiments() -> frozenset[str]:
    """Names of the experiments."""
    return frozenset(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


def experiment_of(item: pytest.Item) -> str:
    """The experiment that a test is of; what is sorted behind all names where it is of none."""
    told = getattr(item, "callspec", None) if item.path.name in OF_EXPERIMENTS else None
    name = told.id.removeprefix("experiment=") if told else ""
    return name if name in experiments() else "~"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one experiment come first and follow each other: its model is traced once and kept for the next."""
    items.sort(key=experiment_of)


OF_TESTS = {"program_slopes"}  # modules of tests that keep programs, beside the rooms of the package
MAX_RESIDENT, MARGIN = 5 * 2**28, 2**28
"""Bytes of a worker above which it lets go of traced and compiled programs (1.25 GiB), and how much it may grow after
all steps before it takes them again: some memory does not go back to the system, and to look through all takes long."""
MOST_COMPOSED = 3000
"""Choices of parts whose composition is kept on disk, more than all tests make: each takes Hydra a quarter second."""
allowed = [MAX_RESIDENT]


def trim() -> None:
    """Give the system back what is free; the models let the C library keep half a gigabyte for the next array."""
    from codesign.core.free_memory import give_back  # not before the import hook of the checks is there

    give_back()


def drop_programs() -> None:
    """Free programs, those of JAX and our own; compiled ones stay on disk."""
    from codesign.core.free_memory import forget_calls, forget_programs

    forget_programs()
    for name in OF_TESTS & set(sys.modules):
        forget_calls(vars(sys.modules[name]))
    trim()


def collect() -> None:
    """Free objects that hold each other, among all that there are."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    trim()


LESS_MEMORY = (trim, drop_programs, collect)
"""Steps that take 0.05, 0.5 and 1 to 4 seconds: none is taken where the one before it was enough."""


@pytest.fixture
def roomy() -> None:
    """Memory for a test that takes most of a gigabyte by itself: what earlier tests traced and compiled goes first."""
    drop_programs()
    collect()


def subject(item: pytest.Item) -> tuple[Path, str]:
    """Key of tests that share compiled programs: their file and, of a few files, their experiment."""
    return item.path, experiment_of(item)


def keep_as_commands_do(config: pytest.Config) -> None:
    """Let what is composed and traced lie on disk for all workers, as it does for users.

    Formulas whose types are checked at run time are traced anew each time: what is read is not checked.
    """
    from codesign.core import disk_cache  # not before the import hook of the checks is there

    disk_cache.MAX_TEXTS = MOST_COMPOSED
    disk_cache.keep_in(None if config.getoption("jaxtyping_packages", None) else CACHE / "codesign")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test."""
    keep_as_commands_do(session.config)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Free programs where they take much, of one subject a little later; tests of the cache may have turned it."""
    shared = nextitem is not None and subject(nextitem) == subject(item)
    if not shared:
        keep_as_commands_do(item.config)
    from codesign.core.free_memory import resident_bytes

    for step in LESS_MEMORY:
        if resident_bytes() <= allowed[0] + shared * MARGIN:
            return
        step()
    allowed[0] = max(MAX_RESIDENT, resident_bytes() + MARGIN)


def pytest_configure(config: pytest.Config) -> None:
    """Measure the CPU time of each test, and hold it against its tier."""
    config.pluginmanager.register(tiers.CpuTimes(config), "cpu-times")


def pytest_unconfigure() -> None:
    """Look once for objects that fail as they go; pytest looks five times more, through a gigabyte of programs."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--cpu-times FILE`."""
    tiers.add_options(parser)


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """The folder of reference data that lies beside the project and is no part of it."""
    path = ROOT.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("no reference data here: ../shared/reference, beside the project, is absent")
    return path
