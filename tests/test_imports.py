"""Imports point one way, Hydra stays at the edge, and the command line starts without JAX."""

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "codesign"

# Low to high. A module may import the layers below its own; modules of one layer do not know each other.
LAYERS = [
    {"_version"},
    {"core"},
    {"jaxprs", "executors", "simulation"},
    {"model"},
    {"study"},
    {"staging"},
    {"curvature", "uncertainty"},
    {"search", "verification"},  # that which checks the search shares nothing with it
    {"report"},
    {"config"},
    {"testing"},
    {"evidence"},
    {"commands"},
    {"explorer"},
    {"__init__", "__main__"},
]
INSIDE = {  # the same within a room; a name stands for what lies below it, unless that has a line of its own
    "model": [
        {"hardware", "slices", "scaling_laws", "reliability", "carbon"},
        {"networks.topology"},
        {"networks.fabrics"},
        {"networks.collectives", "workloads"},
        {"network_traffic", "error_factors", "ownership"},
        {"scenario"},
        {"metrics"},
        {"__init__", "networks"},
    ],
    "study": [
        {"feasible_plans"},
        {"plan_axes"},
        {"objective", "design_space"},
        {"__init__"},
    ],
    "search": [
        {"certificate", "settings", "assignment"},
        {"base", "blend"},
        {"single", "branch_and_bound", "exhaustive"},
        {"robust", "grid_then_proof", "front", "descent", "objective_fn"},
        {"mix", "blackbox"},
        {"amortised"},
        {"results", "amortised.training"},
        {"solve"},
        {"__init__"},
    ],
    "evidence": [
        {"measurements"},
        {"importers", "observing", "calculon"},
        {"calibration"},
        {"validation"},
        {"reproduction"},
        {"__init__"},
    ],
    "commands": [
        {"parser"},
        {"cli", "plain_questions"},
        {"__init__"},
    ],
}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
KNOWS_HYDRA = {"config", "commands"}


def top_level_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported_names(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, absolute dotted name) of each import in a file, those inside functions included."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def package_imports() -> Iterator[tuple[str, str, str]]:
    """Yields (place, importing top-level module, imported name) over the whole package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, name in imported_names(path):
            yield f"{path.relative_to(ROOT)}:{line}", top_level_name(path), name


def test_every_module_has_a_place_in_the_order():
    unknown = {top_level_name(path) for path in PACKAGE.rglob("*.py")} - RANK.keys()
    assert not unknown, f"give {sorted(unknown)} a place in LAYERS of tests/test_imports.py, on purpose"


@pytest.mark.slow
def test_imports_point_one_way():
    wrong = []
    for place, module, name in package_imports():
        root, *rest = name.split(".")
        if root != "codesign" or module not in RANK:
            continue
        target = rest[0] if rest and rest[0] in RANK else "__init__"  # `from codesign import x` asks __init__
        if RANK[target] >= RANK[module] and target != module:
            wrong.append(f"{place}: {module} must not import {target}")
    assert not wrong, "\n".join(wrong)


def place_of(name: str, layers: list[set[str]]) -> str:
    """The longest entry of the layers that a dotted name lies in; '' for none."""
    known = {entry for layer in layers for entry in layer}
    parts = name.split(".")
    return next((p for n in range(len(parts), 0, -1) if (p := ".".join(parts[:n])) in known), "")


@pytest.mark.parametrize("room", INSIDE)
def test_imports_within_a_room_point_one_way(room: str):
    layers, wrong = INSIDE[room], []
    rank = {name: index for index, layer in enumerate(layers) for name in layer}
    partial = room == "commands"  # only its doors have an order
    for path in sorted((PACKAGE / room).rglob("*.py")):
        own = place_of(".".join(path.relative_to(PACKAGE / room).with_suffix("").parts), layers)
        assert own or partial, (
            f"give {path.relative_to(PACKAGE)} a place in INSIDE of tests/test_imports.py, on purpose"
        )
        for line, name in imported_names(path):
            if not name.startswith(f"codesign.{room}."):
                continue
            target = place_of(name.removeprefix(f"codesign.{room}."), layers) or ("" if partial else "__init__")
            if own and target and target != own and rank[target] >= rank[own]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {own} must not import {target}")
            if partial and target and not own:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: a command must not import {target}")
    assert not wrong, "\n".join(wrong)


def test_hydra_stays_at_the_edge():
    wrong = [
        f"{place}: {name}"
        for place, module, name in package_imports()
        if name.split(".")[0] in {"hydra", "omegaconf"} and module not in KNOWS_HYDRA
    ]
    assert not wrong, "only config and commands may know Hydra:\n" + "\n".join(wrong)


def test_the_package_knows_no_experiment():
    beside = {"_lib", "experiments"}
    wrong = [f"{place}: {name}" for place, _, name in package_imports() if name.split(".")[0] in beside]
    assert not wrong, "what the package needs is in the package:\n" + "\n".join(wrong)


def test_command_line_starts_without_jax():
    code = "import sys, codesign.commands.cli; sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "import codesign.commands.cli imported jax"


@pytest.mark.slow
def test_a_default_run_waits_for_no_graphs_and_no_programmes():
    """networkx and the parts of SciPy cost half a second that few studies need."""
    code = (
        "import sys, codesign.commands.multirun; print({'networkx', 'scipy.sparse', 'scipy.optimize'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_no_default_is_rounded_before_double_precision_is_set():
    """A component that is the default of a field would be made at import, in single precision."""
    code = (
        "import jax, codesign.commands.optimize;"
        "from codesign.config.construct import targets; targets();"
        "print([float(number) for number in jax.live_arrays() if float(number)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("folder", ["benchmarks", "experiments", "qa", "tests"])
def test_names_that_scripts_import_from_the_package_exist(folder: str):
    """Scripts that no test runs would break unseen when a name moves; what experiments share is `_lib`."""
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, name in imported_names(path):
            name = name.removeprefix("experiments.")
            module, _, leaf = name.rpartition(".")
            if name.split(".")[0] not in ("codesign", "_lib"):
                continue
            try:
                result = importlib.import_module(module) if module else None
                known = leaf == "*" or result is None or hasattr(result, leaf)
                if not known:
                    importlib.import_module(name)
            except ImportError as error:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name} ({error})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_jax_does_not_begin_when_the_package_is_loaded():
    """`prepare_jax` sets float64 and the compiler before the first array: no platform is asked for until then."""
    run = "from codesign import evaluate, objective_fn, serve, study_from_config; import codesign.search"
    environment = os.environ | {"JAX_PLATFORMS": "there_is_none"}
    done = subprocess.run([sys.executable, "-c", run], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
