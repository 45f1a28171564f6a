"""Imports point one way, Hydra stays at the edge, and the command line starts without JAX."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "codesign"

# Low to high. A module may import the layers below its own; modules of one layer do not know each other.
FOUNDATION = {
    "fields",
    "frames",
    "units",
    "showing",
    "errors",
    "atomic_files",
    "terminal_encoding",
    "smooth",
    "cost",
    "by_numpy",
    "points_behind",
    "compiling",
    "loops",
    "loop_bodies",
    "elementary",
    "written_calls",
    "equations",
    "interpreting",
    "strict_json",
    "no_end",
    "plain_yaml",
    "foreign",
    "kept_on_disk",
    "shipped",
    "menus",
    "examples",
    "release",
    "non_dominated",
    "typed_jax",
}  # one layer, but these may import each other
LAYERS = [
    FOUNDATION,
    {"hardware", "slices", "quality", "reliability", "carbon", "distributing"},
    {"topology"},
    {"fabrics"},
    {"collectives", "workloads", "simulation"},
    {"traffic", "doubts", "ownership"},
    {"scenario"},
    {"metrics", "expressions", "rules", "movers"},
    {"objective", "space"},
    {"staging"},
    {"curvature"},
    {"uncertainty"},
    {"search", "verification"},  # that which checks the search shares nothing with it
    {"results", "amortising"},
    {"solving"},
    {"report"},
    {"config", "measurements"},
    {"testing"},
    {"calibration"},
    {"validation"},
    {"reproduce"},
    {"run"},
    {"explorer"},
    {"loading", "command_help"},
    {"command_line"},
    {"evidence_commands"},
    {"cli"},
    {"__init__", "__main__"},
]
ROOMS_OF_SEARCH = [  # the same within search/
    {"certificate", "settings"},
    {"base", "blend", "claims"},
    {"sent_problem"},
    {"logarithms", "single", "branch_and_bound", "exhaustive"},
    {"robust", "grid_then_proof", "front", "descent"},
    {"mix", "blackbox"},
    {"amortised", "comparison"},
    {"__init__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
KNOWS_HYDRA = {"config", "run", "cli"}


def top_level_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, absolute dotted name) of each import in a file, those inside functions included."""
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


def test_imports_point_one_way():
    wrong = []
    for place, module, name in package_imports():
        root, *rest = name.split(".")
        if root != "codesign" or module not in RANK:
            continue
        target = rest[0] if rest and rest[0] in RANK else "__init__"  # `from codesign import x` asks __init__
        if RANK[target] >= RANK[module] and target != module and not {target, module} <= FOUNDATION:
            wrong.append(f"{place}: {module} must not import {target}")
    assert not wrong, "\n".join(wrong)


def test_rooms_of_the_search_import_one_way():
    rank, wrong = {name: place for place, layer in enumerate(ROOMS_OF_SEARCH) for name in layer}, []
    for path in sorted((PACKAGE / "search").rglob("*.py")):
        room = path.relative_to(PACKAGE / "search").parts[0].removesuffix(".py")
        assert room in rank, f"give {room} a place in ROOMS_OF_SEARCH of tests/test_imports.py, on purpose"
        for line, name in imported_names(path):
            target = (name.split(".") + [""] * 3)[2]
            if not name.startswith("codesign.search.") or target == room:
                continue
            if rank.get(target, len(ROOMS_OF_SEARCH)) >= rank[room]:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {room} must not import {target}")
    assert not wrong, "\n".join(wrong)


def test_hydra_stays_at_the_edge():
    wrong = [
        f"{place}: {name}"
        for place, module, name in package_imports()
        if name.split(".")[0] in {"hydra", "omegaconf"} and module not in KNOWS_HYDRA
    ]
    assert not wrong, "only config, run and cli may know Hydra:\n" + "\n".join(wrong)


@pytest.mark.skipif(not (PACKAGE / "cli.py").exists(), reason="codesign/cli.py is not written yet")
def test_command_line_starts_without_jax():
    code = "import sys, codesign.cli; sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "import codesign.cli imported jax"


def test_a_default_run_waits_for_no_graphs_and_no_programmes():
    """networkx and the parts of SciPy cost half a second that few studies need."""
    code = "import sys, codesign.run.multirun; print({'networkx', 'scipy.sparse', 'scipy.optimize'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("folder", ["benchmarks", "experiments", "qa", "tests"])
def test_names_that_scripts_import_from_the_package_exist(folder: str):
    """Scripts that no test runs would break unseen when a name moves."""
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for line, name in imported_names(path):
            module, _, leaf = name.rpartition(".")
            if name.split(".")[0] != "codesign":
                continue
            try:
                found = importlib.import_module(module) if module else None
                known = leaf == "*" or found is None or hasattr(found, leaf)
                if not known:
                    importlib.import_module(name)
            except ImportError as error:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name} ({error})")
    assert not wrong, "\n".join(wrong)
