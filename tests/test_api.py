"""What `import codesign` offers: names that exist, are typed and shown; a study solved from Python alone."""

import ast
import importlib
import json
import re
from collections.abc import Collection
from inspect import ismodule
from pathlib import Path

import jax.numpy as jnp
import pytest
from builders import training
from documented import PAGES, blocks

import codesign
from codesign import Certified, Continuous, DesignSpace, Grid, Objective, Problem, Solution, solve
from codesign.core.errors import ConfigError
from codesign.core.units import engineering

SPACE = DesignSpace(
    plan={"tp": [4, 8], "pp": [4, 8]},
    hardware={"up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9)},
)


ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PUBLIC, INTERNAL = (
    re.findall(r"^\| `(codesign[\w.]+)` \|", part, re.MULTILINE) for part in PAGE.split("## Internals", 1)
)
LAZY = ("commands", "config", "core", "evidence", "explorer", "jaxprs", "model", "report", "study")
SCRIPTS = {
    "benchmarks": [*PUBLIC, *INTERNAL],
    "experiments": [*PUBLIC, *INTERNAL],
    "qa": [*PUBLIC, *INTERNAL],
    "tests/data/plugin": PUBLIC,  # a package of a user's own
}


@pytest.mark.parametrize("menu", ["codesign", *(f"codesign.{room}" for room in LAZY)])
def test_lazy_menus_are_typed_and_shown(menu: str):
    """What editors see below `TYPE_CHECKING`, what is imported when asked for, and `__all__` are one list."""
    package = importlib.import_module(menu)
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    guarded = [part for node in tree.body if isinstance(node, ast.If) for part in node.body]
    typed = {alias.name for node in guarded if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(package.__all__) == set(dir(package))
    by_kind = sorted(package.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert by_kind == package.__all__  # constants, classes, the rest
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        package.solv


def test_every_public_name_exists_and_says_what_it_is():
    assert codesign.__doc__
    for name in codesign.__all__:
        assert getattr(codesign, name).__doc__, name
    assert set(codesign.__all__) <= set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PAGE))))


@pytest.mark.parametrize("name", [*PUBLIC, *INTERNAL])
def test_what_the_page_offers_is_there(name: str):
    """Packages, each with a list of names; modules that the page names in its row are on that list."""
    package = importlib.import_module(name)
    assert package.__doc__
    assert hasattr(package, "__path__"), f"{name} is a file: name the package that offers it"
    missing = [word for word in package.__all__ if not hasattr(package, word)]
    assert not missing, f"{name} has no {', '.join(missing)}"
    row = re.search(rf"^\| `{name}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert row
    modules = {word for word in package.__all__ if ismodule(getattr(package, word))}
    assert modules <= set(re.findall(r"`(\w+)`", row[1]))


def test_the_page_stays_short():
    assert len(PUBLIC) <= 22
    assert len(INTERNAL) <= 14


def names_of(module: str, offered: Collection[str]) -> Collection[str]:
    """What may be imported from a module: of a package on the page, or of a module that such a package offers."""
    package, _, name = module.rpartition(".")
    if module in ("codesign", *offered):
        return importlib.import_module(module).__all__
    if package in offered and name in (room := importlib.import_module(package)).__all__:
        return getattr(room, name).__all__ if ismodule(getattr(room, name)) else ()
    return ()


def foreign(source: str, offered: Collection[str]) -> list[str]:
    """Names of the package that a program uses and nothing offers."""
    wrong, tree, modules = [], ast.parse(source), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wrong += [alias.name for alias in node.names if alias.name.startswith("codesign.")]
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "codesign":
            module, known = str(node.module), names_of(str(node.module), offered)
            wrong += [f"{module}.{alias.name}" for alias in node.names if alias.name not in known]
            given = {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
            modules |= {name: whole for name, whole in given.items() if names_of(whole, offered)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if node.attr not in names_of(module, offered):
                wrong.append(f"{module}.{node.attr}")
    return wrong


@pytest.mark.parametrize("folder", SCRIPTS)
def test_scripts_use_what_is_offered_and_nothing_else(folder: str):
    paths = sorted((ROOT / folder).rglob("*.py"))
    result = {str(path.relative_to(ROOT)): foreign(path.read_text(encoding="utf-8"), SCRIPTS[folder]) for path in paths}
    assert not {path: wrong for path, wrong in result.items() if wrong}
    assert len(result) >= {"qa": 5, "tests/data/plugin": 4}.get(folder, 16)


def test_notebooks_and_pages_use_what_is_public():
    shown = {page: [block.text for block in blocks(page) if block.kind == "program"] for page in PAGES}
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        shown[path] = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    result = {page.name: foreign("\n".join(programs), PUBLIC) for page, programs in shown.items() if programs}
    assert not {page: wrong for page, wrong in result.items() if wrong}
    assert len([name for name in result if name.endswith(".ipynb")]) >= 5
    assert len(result) >= 7


def test_what_is_not_offered_is_noticed():
    assert foreign("from codesign.core.fields import quantity", PUBLIC) == ["codesign.core.fields.quantity"]
    assert foreign("from codesign.core import as_leaf", PUBLIC) == ["codesign.core.as_leaf"]
    assert foreign("import codesign.staging", [*PUBLIC, *INTERNAL]) == ["codesign.staging"]
    assert foreign("from codesign.staging import Points", PUBLIC) == ["codesign.staging.Points"]
    program = "from codesign.search import settings as numbers\nnumbers.hidden"
    assert foreign(program, PUBLIC) == ["codesign.search.settings.hidden"]


def test_a_scenario_shows_numbers_with_units():
    text = repr(training())
    assert "GB/s" in text
    assert "TFLOP/s" in text
    assert "\n" in text
    assert "Array(" not in text
    assert "dtype" not in text


@pytest.mark.slow
def test_a_problem_is_solved_with_a_proof_from_python():
    problem = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 60e6}))
    answer = solve(problem, Certified(gap=2e-3))
    assert isinstance(answer, Solution)
    assert answer.certified
    assert answer.feasible
    assert answer.bound <= float(answer.best["objective"]) <= answer.bound * (1 + 2e-3 + 1e-9)
    assert float(codesign.evaluate(answer.scenario()).time_s) == pytest.approx(float(answer.best["time_s"]), rel=1e-12)
    assert repr(answer).startswith(f"Solution(time_s {engineering(answer.best['objective'], 's', 4)})\n  claim  ")
    assert jnp.asarray(answer.scenario().plan.tp) in (4.0, 8.0)
    with pytest.raises(ConfigError, match="rank = 0 must be from 1"):
        answer.scenario(0)


def test_that_nothing_is_feasible_is_told():
    problem = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 1.0}))
    answer = solve(problem, Certified())
    assert not answer.feasible
    assert repr(answer).startswith("Solution(no feasible design)\n")


def test_a_search_that_proves_nothing_has_no_bound():
    problem = Problem(training(), SPACE, Objective("time_s"))
    answer = solve(problem, Grid())
    assert (answer.bound, answer.gap, answer.certified) == (None, None, False)
    assert len(answer.designs) > 1


def test_a_metric_of_one_kind_of_job_says_how_it_is_asked_for():
    metrics = codesign.evaluate(codesign.scenario_from_config("model=llama31_8b", "workload=static_batch"))
    with pytest.raises(AttributeError, match=r"of this job it is metrics\['tpot_s'\]"):
        _ = metrics.tpot_s
    with pytest.raises(AttributeError, match=r"no attribute 'tpot'$"):
        _ = metrics.tpot
    assert float(metrics["tpot_s"]) == float(metrics.get("tpot_s")) > 0
    with pytest.raises(ConfigError, match=r"metric 'tpot' does not exist .did you mean 'tpot_s'"):
        _ = metrics["tpot"]
