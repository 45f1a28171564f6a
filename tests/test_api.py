"""What `import codesign` offers: names that exist, are typed and shown; a study solved from Python alone."""

import ast
from pathlib import Path

import jax.numpy as jnp
import pytest
from builders import training

import codesign
from codesign import Certified, Continuous, DesignSpace, Grid, Objective, Problem, Solution, solve
from codesign.errors import ConfigError

SPACE = DesignSpace(
    plan={"tp": [4, 8], "pp": [4, 8]},
    hardware={"up": Continuous("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 100e9, 900e9)},
)


def test_every_public_name_exists_is_typed_and_is_shown():
    tree = ast.parse(Path(codesign.__file__).read_text(encoding="utf-8"))
    typed = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed - {None} == set(codesign.__all__) == {name for names in codesign._HOME.values() for name in names}
    assert sorted(codesign.__all__) == codesign.__all__
    assert set(codesign.__all__) <= set(dir(codesign))
    for name in codesign.__all__:
        assert getattr(codesign, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'solv'"):
        codesign.solv


def test_a_problem_is_solved_with_a_proof_from_python():
    problem = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 60e6}))
    answer = solve(problem, Certified(gap=2e-3))
    assert isinstance(answer, Solution)
    assert answer.certified
    assert answer.feasible
    assert answer.bound <= float(answer.best["objective"]) <= answer.bound * (1 + 2e-3 + 1e-9)
    assert float(codesign.evaluate(answer.scenario()).time_s) == pytest.approx(float(answer.best["time_s"]), rel=1e-12)
    assert repr(answer).startswith(f"Solution(time_s {float(answer.best['objective']):.6g}; ")
    assert jnp.asarray(answer.scenario().plan.tp) in (4.0, 8.0)
    with pytest.raises(ConfigError, match="rank = 0 must be from 1"):
        answer.scenario(0)


def test_that_nothing_is_feasible_is_told():
    problem = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 1.0}))
    answer = solve(problem, Certified())
    assert not answer.feasible
    assert repr(answer).startswith("Solution(no feasible design; ")


def test_a_search_that_proves_nothing_has_no_bound():
    problem = Problem(training(), SPACE, Objective("time_s"))
    answer = solve(problem, Grid())
    assert (answer.bound, answer.gap, answer.certified) == (None, None, False)
    assert len(answer.designs) > 1
