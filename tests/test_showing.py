"""What objects show at a prompt and in a notebook: numbers with units in few lines, traced or in batches too."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import serving, training

from codesign.config import study_from_config
from codesign.core.fields import replace
from codesign.core.pretty import WIDTH, html_table, lines_text, number_text, shown
from codesign.core.units import engineering
from codesign.model.metrics import evaluate
from codesign.report.side_by_side import Comparison
from codesign.search import Certificate, Certified, Grid, Problem
from codesign.search.certificate import Binding
from codesign.search.solve import solve
from codesign.study.design_space import Continuous, DesignSpace, Ratio
from codesign.study.objective import Objective

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
SPACE = DesignSpace(
    {"tp": [4, 8], "recompute": ["none", "full"]},
    {
        "up": Continuous(UP, 150e9, 900e9),
        "far": Ratio("cluster.accelerator.hbm.capacity_bytes", "cluster.host.memory.capacity_bytes", 0.16, 0.64),
    },
)
UNKNOWN = re.compile(r"f(loat)?(32|64)\[|Array\(|dtype|object at 0x|np\.float")


def checked(thing) -> tuple[str, str]:
    """Text and HTML of an object, both without arrays that say nothing and within the width."""
    text, html = repr(thing), thing._repr_html_()
    assert str(thing) == text
    for told in (text, html):
        assert not UNKNOWN.search(told), told
    assert max(map(len, text.splitlines())) <= WIDTH
    assert html.count("<table>") == html.count("</table>") >= 1
    return text, html


@pytest.fixture(scope="module")
def answer():
    limits = {"capex_usd": 60e6}
    return solve(Problem(training(), SPACE, Objective("time_s", limits=limits)), Certified(gap=2e-3))


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (4.7919, "time_s", "4.792 s"), (3.5 * 365.25 * 86400, "amortisation_s", "3.5 years"),
        (9000.0, "a.run_s", "2.5 h"),
        (28650.0, "price_usd", "$28,650"), (54.1e6, "capex_usd", "$54.1 M"),
        (0.91227, "usd_per_million_tokens", "$0.9123"),
        (437612.0, "tokens_per_s", "437,600 tokens/s"), (9.997e11, UP, "999.7 GB/s"), (9.99996e11, UP, "1 TB/s"),
        (2.9, "joules_per_token", "2.9 J"), (0.45871, "mfu", "0.4587"), (1024.0, "device_count", "1024"),
        (np.array([1.0, 2.5]), "time_s", "[2] 1 s to 2.5 s"), (np.ones((2, 3)), "power_w", "[2 x 3] 1 W"),
        (np.zeros(0), "power_w", "[0]"), (float("inf"), "time_s", "inf"), (float("nan"), "time_s", "nan"),
    ],
)  # fmt: skip
def test_a_number_has_the_unit_of_its_name(value, name, text):
    assert number_text(value, name) == text


@pytest.mark.parametrize("scenario", [training, serving])
def test_metrics_show_every_number_that_is_not_zero(scenario):
    metrics = evaluate(scenario())
    text, html = checked(metrics)
    assert len(text.splitlines()) < 25
    assert f"time_s={engineering(float(metrics.time_s), 's', 4)}" in text
    assert f"hbm/weights: {engineering(float(metrics.memory_bytes['hbm/weights']), 'B', 4)}" in text
    assert "violations={}" in text
    for name in metrics.extra:
        assert f"{name}: " in text
        assert f">{name}<" in html
    shown_parts = {name for name in metrics.breakdown_s if f">breakdown_s.{name}<" in html}
    assert shown_parts == {name for name, value in metrics.breakdown_s.items() if float(value)}


def test_a_broken_rule_is_shown():
    metrics = evaluate(replace(training(), {"plan.tp": 7.0}))
    broken = [name for name, value in metrics.violations.items() if float(value)]
    assert broken
    assert all(f"{name}: " in repr(metrics) for name in broken)


@pytest.mark.slow
def test_traced_and_batched_metrics_show_as_well():
    told = []

    def priced(bandwidth):
        metrics = evaluate(replace(training(), {UP: bandwidth}))
        told.append((repr(metrics), metrics._repr_html_(), repr(replace(training(), {UP: bandwidth}))))
        return metrics

    jax.jit(priced).trace(450e9)
    batched = jax.vmap(priced)(jnp.array([150e9, 900e9]))
    jax.grad(lambda x: priced(x).time_s)(450e9)
    assert len(told) == 3
    for text, html, scenario in told:
        assert "time_s=traced float64[]" in text
        assert "traced float64[]" in html
        assert "bandwidth_bytes_per_s=traced float64[]" in scenario
    low, high = (engineering(float(end), "s", 4) for end in sorted(batched.time_s))
    assert f"time_s=[2] {low} to {high}" in repr(batched)
    assert not UNKNOWN.search(repr(batched))


def test_a_scenario_is_folded_in_a_notebook():
    scenario = training()
    html = scenario._repr_html_()
    assert not UNKNOWN.search(html)
    assert html.count("<details") == html.count("</details>") > 5
    assert html.startswith("<details open><summary><b>Scenario</b>")
    for part in ("GB/s", "TFLOP/s", "gpt3", ">tp<"):
        assert part in html
    assert repr(scenario) == str(scenario) == shown(scenario)


def test_a_study_shows_goal_limits_and_ranges():
    text, html = checked(study_from_config("experiment=train_gpt3_175b"))
    joined = " ".join(text.split())
    assert text.splitlines()[:2] == ["Study('train_gpt3_175b')", "  minimise  usd_per_million_tokens"]
    for told in (joined, html):
        assert "provisioned_power_w at most 1.4 MW" in told
        assert "capex_usd at most $55 M" in told
        assert "scale_up_bandwidth 150 GB/s to 1.8 TB/s" in told
        assert "hbm_to_ddr 0.16 to 0.64" in told
    assert joined.endswith(" search GridThenProof")


def test_a_solution_shows_the_best_design(answer):
    text, html = checked(answer)
    best = answer.best
    for told in (text, html):
        assert f"time_s {engineering(best['objective'], 's', 4)}" in told
        assert "certified: proven within" in told
        assert engineering(best["var.up"], "B/s", 4) in told
    assert f"tp {best['var.tp']:g}" in text
    assert "recompute none" in text or "recompute full" in text


def test_that_nothing_is_feasible_or_proven_is_shown():
    problem = Problem(training(), SPACE, Objective("time_s", limits={"capex_usd": 1.0}))
    none = solve(problem, Certified())
    assert checked(none)[0].startswith("Solution(no feasible design)\n")
    assert "infeasible  capex_usd" in checked(none.certificate)[0]
    assert "no certificate" in checked(solve(Problem(training(), SPACE, Objective("time_s")), Grid()))[0]


def test_a_certificate_shows_claim_bound_gap_and_active_constraints(answer):
    text, html = checked(answer.certificate)
    best, bound = (engineering(value, "s", 4) for value in (answer.certificate.best, answer.bound))
    assert " ".join(text.split()).startswith(f"Certificate(certified) time_s {best} at least {bound} gap ")
    assert f">{best}<" in html
    assert "at bounds  up high" in text
    assert "active" not in text
    held = Binding("capex_usd", 1.0, -0.3, -0.2, None, None, -0.01, changes_plan=False)
    slack = dataclasses.replace(held, constraint="power_w", used=0.7)
    text, html = checked(dataclasses.replace(answer.certificate, constraints=(held, slack)))
    assert re.search(r"active +capex_usd 100 %$", text, re.MULTILINE)
    assert "power_w" not in text + html


def test_a_certificate_that_proves_less_says_why():
    rough = Certificate(convex=True, goal="tokens_per_s", sense="maximise", best=2e5, bound=3e5, gap=0.5, reason="time")
    assert repr(rough).splitlines() == [
        "Certificate(convex, gap not reached)",
        "  tokens_per_s  200,000 tokens/s",
        "  at most       300,000 tokens/s",
        "  gap           50 %",
        "  why           time",
    ]
    told = repr(Certificate(goal="time_s", reason="goal: sub")).splitlines()
    assert told == ["Certificate(not proven)", "  time_s  none", "  why     goal: sub"]


def test_a_comparison_shows_a_line_each():
    rows = [
        {"candidate": "b200", "feasible": True, "objective": 0.28, "time_s": 0.9, "capex_usd": 6e7,
         "usd_per_million_tokens_low": 0.26, "usd_per_million_tokens_high": 0.8},
        {"candidate": "<h20>", "feasible": False, "objective": np.nan, "time_s": np.nan, "why": "memory & more"},
    ]  # fmt: skip
    text, html = checked(Comparison(pd.DataFrame(rows), "usd_per_million_tokens"))
    assert text.splitlines()[1].split() == ["b200", "$0.280,", "90", "%", "$0.260", "to", "$0.800"]
    assert text.splitlines()[2] == "  <h20>  memory & more"
    assert "&lt;h20&gt;" in html
    assert "<h20>" not in html
    assert "memory &amp; more" in html
    assert "$60.0 M" in html


def test_names_cannot_write_html_and_long_lines_are_broken():
    assert "<b>&lt;i&gt;</b>" in html_table("<i>", [("<a>", "<b>")])
    lines = lines_text("T", [("plan", ", ".join(["x=1"] * 40)), ("search", "S")]).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].startswith("  plan    x=1")
    assert lines[2].startswith(" " * 10 + "x")
