"""Float64 on the CPU, a compile cache shared by all workers, run-time checked shapes, repeatable examples."""

import gc
import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX is imported, and for the processes that tests start

import hypothesis
import jax
import pytest
import typecheck

ROOT = Path(__file__).resolve().parent.parent

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

gc.freeze()  # what is imported stays
gc.set_threshold(
    50_000, 10, 20
)  # traced programs stay too: looking through all of them again and again costs a quarter

typecheck.install("codesign")  # here, before any test imports codesign

hypothesis.settings.register_profile("codesign", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("codesign")


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """The folder of reference data that lies beside the project and is no part of it."""
    path = ROOT.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("no reference data here: ../shared/reference, beside the project, is absent")
    return path
