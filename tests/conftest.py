"""Float64 on the CPU, a compile cache shared by all workers, run-time checked shapes, repeatable examples."""

import contextlib
import gc
import os
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX is imported, and for the processes that tests start
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()
if version("jaxlib").startswith("0.10."):  # halves the time of compiling; later ones abort at a flag they lack
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of these would compile the whole package anew

import composing
import hypothesis
import jax
import pytest
import tracing
import typecheck
import yaml
from _pytest.runner import pytest_runtest_protocol as run_one
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_yaml_loader

ROOT = Path(__file__).resolve().parent.parent

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

gc.freeze()  # what is imported stays
gc.set_threshold(5_000_000, 1_000, 1_000)
# Traced programs stay too: what Python looks for among them it looks for between tests, once (`let_go`).

tracing.install()
typecheck.install("codesign")  # here, before any test imports codesign

from codesign.frames import roomy  # noqa: E402

read_yaml = OmegaConf.load
parsed: dict[str, Any] = {}


class QuickLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """OmegaConf's reader of YAML, by the C library: eight times as fast."""

    yaml_implicit_resolvers = get_yaml_loader().yaml_implicit_resolvers

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> Any:
        """A mapping, none of its keys written twice."""
        keys = [key.value for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise yaml.YAMLError("a key that is written twice")
        return super().construct_mapping(node, deep=deep)


def load(file_: str | Path | IO[Any]) -> DictConfig | ListConfig:
    """A file of the configuration; each is composed hundreds of times, and its text is parsed once."""
    if isinstance(file_, str | Path):
        return read_yaml(file_)
    text = file_.read()
    if text in parsed:
        return OmegaConf.create(parsed[text])
    with contextlib.suppress(yaml.YAMLError):  # what cannot be read is complained of as ever
        plain = yaml.load(text, Loader=QuickLoader)
        if isinstance(plain, dict):
            parsed[text] = plain
            return OmegaConf.create(plain)
    file_.seek(0)
    found = read_yaml(file_)
    parsed[text] = OmegaConf.to_container(found)
    return found


OmegaConf.load = load
composing.install()

hypothesis.settings.register_profile("codesign", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("codesign")


OF_EXPERIMENTS = {"test_conf.py", "test_staging.py", "test_proofs.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one experiment come first and follow each other: its model is traced once and kept for the next."""
    names = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}

    def experiment(item: pytest.Item) -> str:
        told = getattr(item, "callspec", None) if item.path.name in OF_EXPERIMENTS else None
        name = told.id.removeprefix("experiment=") if told else ""
        return name if name in names else "~"  # after all names

    items.sort(key=experiment)


MOST_RESIDENT, MORE = 6 * 2**30, 2 * 2**30  # bytes of a worker; two and what they start must fit into 24 GiB
GROWN = 2**29  # bytes after which a worker looks for what nobody refers to any more
allowed, looked = [MOST_RESIDENT], [0]


def resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest runs a test, with room for the frames of deep calls, as a command of `codesign` has it."""
    return roomy(run_one)(item, nextitem)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Lets go of what is of no use, where a worker has grown by it."""
    let_go(between_files=nextitem is None or nextitem.path != item.path)


def let_go(between_files: bool) -> None:
    """Give back what nobody refers to; between two files a worker that has grown large also lets go of what JAX keeps.

    What is looked through once is not looked through again before that. What JAX lets go has to be traced again
    (compiled programs stay on disk), and memory in pieces does not go back: the next time is 2 GiB later.
    """
    resident = resident_bytes()
    if between_files and resident > allowed[0]:
        gc.unfreeze()
        jax.clear_caches()
        gc.collect()
        allowed[0] = max(MOST_RESIDENT, resident_bytes() + MORE)
    elif resident > looked[0] + GROWN:
        gc.collect()
    else:
        return
    gc.freeze()
    looked[0] = resident_bytes()


def pytest_sessionfinish() -> None:
    """What is left goes back with the process; looking through it took each worker a quarter of a minute."""
    gc.freeze()


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """The folder of reference data that lies beside the project and is no part of it."""
    path = ROOT.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("no reference data here: ../shared/reference, beside the project, is absent")
    return path
