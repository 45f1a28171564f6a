"""What `import codesign` offers: names that exist, are typed and shown; a study solved from Python alone."""

import ast
import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import pytest
from builders import training

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
OFFERED = re.findall(r"^\| `(codesign[\w.]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("menu", ["codesign", "codesign.config", "codesign.explorer", "codesign.report"])
def test_lazy_menus_are_typed_and_shown(menu: str):
    """What editors see below `TYPE_CHECKING`, what is imported when asked for, and `__all__` are one list."""
    package = importlib.import_module(menu)
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    typed = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed - {None} == set(package.__all__) == set(dir(package))
    assert sorted(package.__all__) == package.__all__
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        package.solv


def test_every_public_name_exists_and_says_what_it_is():
    assert codesign.__doc__
    for name in codesign.__all__:
        assert getattr(codesign, name).__doc__, name
    assert set(codesign.__all__) <= set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", PAGE))))


@pytest.mark.parametrize("name", OFFERED)
def test_what_the_page_offers_is_there(name: str):
    module = importlib.import_module(name)
    assert module.__doc__
    missing = [word for word in getattr(module, "__all__", ["__all__"]) if not hasattr(module, word)]
    assert not missing, f"{name} has no {', '.join(missing)}"


def foreign(path: Path) -> list[str]:
    """Names of the package that a script uses and nothing offers."""
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.startswith("codesign.")]
            wrong += [name for name in modules if name not in OFFERED]
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "codesign":
            module, given = str(node.module), [alias.name for alias in node.names]
            known = importlib.import_module(module).__all__ if module in ("codesign", *OFFERED) else ()
            wrong += [f"{module}.{name}" for name in given if name not in known and f"{module}.{name}" not in OFFERED]
    return wrong


@pytest.mark.parametrize("folder", ["benchmarks", "experiments"])
def test_scripts_use_what_is_offered_and_nothing_else(folder: str):
    found = {str(path.relative_to(ROOT)): foreign(path) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert not {path: wrong for path, wrong in found.items() if wrong}
    assert len(found) > 15


def test_a_scenario_shows_numbers_with_units():
    text = repr(training())
    assert "GB/s" in text
    assert "TFLOP/s" in text
    assert "\n" in text
    assert "Array(" not in text
    assert "dtype" not in text


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
    metrics = codesign.evaluate(codesign.scenario_from_config("model=llama31_8b", "workload=serving"))
    with pytest.raises(AttributeError, match=r"of this job it is metrics\.get\('tpot_s'\)"):
        _ = metrics.tpot_s
    with pytest.raises(AttributeError, match=r"no attribute 'tpot'$"):
        _ = metrics.tpot
    assert float(metrics.get("tpot_s")) > 0
