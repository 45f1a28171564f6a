"""Boards at work: what clocks draw, what a limit costs, and what served models were found to draw."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from codesign.config import conf_dir, scenario_from_config
from codesign.core.fields import replace
from codesign.core.json_yaml import read_yaml
from codesign.evidence.calibration.served_power import (
    LIMITS,
    DrawnPower,
    PowerRows,
    Sampled,
    fit_boards,
    fit_times,
    left_out,
    predicted,
)
from codesign.evidence.validation.power import decoded
from codesign.evidence.validation.served_rows import Job
from codesign.model.hardware import Board, CappedBoard
from codesign.model.metrics import evaluate

SERVED = ("experiment=serve_llama31_405b", "calibration=h100_sxm_roofline", "workload=continuous")
DRAWN = ("+calibration/power=h100_sxm",)


def test_clocks_are_paid_for_as_long_as_a_kernel_runs():
    seconds, joules = Board(200.0, 700.0).at_work(jnp.asarray(1e-3), jnp.asarray(0.1), jnp.asarray(150.0))
    assert float(seconds) == 1e-3
    assert float(joules) == pytest.approx(0.1 + 0.2)
    assert float(Board(200.0, 700.0).most_j(jnp.asarray(1e-3), jnp.asarray(150.0))) == pytest.approx(0.55)


@pytest.mark.parametrize(("limit", "slower"), [(800.0, 1.0), (700.0, 1.0), (425.0, 2 ** (1 / 3)), (150 + 550 / 8, 2.0)])
def test_a_limit_costs_the_cube_root_of_what_would_be_drawn(limit, slower):
    """550 W of clocks and arithmetic at 150 W idle."""
    board = CappedBoard(jnp.asarray(200.0), jnp.asarray(700.0), jnp.asarray(limit))
    seconds, joules = board.at_work(jnp.asarray(1e-3), jnp.asarray(0.35), jnp.asarray(150.0))
    assert float(seconds) == pytest.approx(1e-3 * slower)
    assert float(joules / seconds) == pytest.approx(min(550.0, limit - 150.0))
    assert float(joules) == pytest.approx(0.55 / slower**2)


def test_what_no_board_may_draw_was_not_drawn_when_it_was_measured():
    """A kernel that would exceed the rated limit was already slowed: the same limit slows it no further."""
    board = CappedBoard(jnp.asarray(200.0), jnp.asarray(700.0), jnp.asarray(700.0))
    seconds, joules = board.at_work(jnp.asarray(1e-3), jnp.asarray(9.0), jnp.asarray(150.0))
    assert float(seconds) == pytest.approx(1e-3)
    assert float(joules) == pytest.approx(0.55)


@pytest.mark.slow
def test_a_limited_machine_is_slower_and_draws_less():
    free = scenario_from_config(*SERVED, *DRAWN)
    accelerator = free.cluster.accelerator
    assert isinstance(accelerator.board, Board)
    results = {}
    for limit in (700.0, 450.0, 350.0):
        board = CappedBoard(accelerator.board.working_w, accelerator.board.rated_w, jnp.asarray(limit))
        capped = replace(free, {"cluster.accelerator.board": board})
        results[limit] = evaluate(capped)
    whole = evaluate(free)
    assert float(results[700.0].time_s) == pytest.approx(float(whole.time_s), rel=1e-9)
    assert results[700.0].time_s < results[450.0].time_s < results[350.0].time_s
    drawn = [float(result.energy_j / result.time_s) for result in results.values()]
    assert drawn[0] > drawn[1] > drawn[2]
    assert float(results[350.0].usage["die.board_power"]) == pytest.approx(float(accelerator.idle_w) / 350.0)


@pytest.mark.slow
def test_choosing_by_chance_takes_time_and_power():
    likeliest, chance = (scenario_from_config(*SERVED, *DRAWN, f"workload.sampling_s={x}") for x in (0, 4e-10))
    before, after = evaluate(likeliest), evaluate(chance)
    decodes = float(likeliest.layout.plan.micro_batch / likeliest.layout.plan.pp)
    added = 4e-10 * float(likeliest.workload.model.vocab) * decodes * float(likeliest.layout.plan.pp)
    assert float(after.extra["tpot_s"] - before.extra["tpot_s"]) == pytest.approx(added, rel=1e-6)
    assert after.energy_j > before.energy_j


def test_shipped_constants_of_sampling_are_those_that_were_fitted():
    fitted = read_yaml((conf_dir() / "calibration" / "frameworks" / "sampled.yaml").read_text())
    shipped = read_yaml((conf_dir() / "framework" / "vllm_sampled.yaml").read_text())
    plain = read_yaml((conf_dir() / "framework" / "vllm.yaml").read_text())
    for name in ("step_overhead_s", "sampling_s", "expert_layer_s"):
        assert shipped[name] == fitted["vllm"][name]
        assert shipped["provenance"][name]["note"] == fitted["provenance"]["vllm"]["note"]
    for name in ("engine", "kernel_slowdown", "request_overhead_s", "prompt_token_s", "expert_launch_s"):
        assert shipped[name] == plain[name]
    for name in LIMITS:
        assert "board" in read_yaml((conf_dir() / "calibration" / "power" / f"{name}.yaml").read_text())


def made(count: int, model) -> PowerRows:
    """Rows of one device as the formulas have them; some wait for their host."""
    rng = np.random.default_rng(3)
    cluster = scenario_from_config("accelerator=h100_sxm", "calibration=h100_sxm_roofline").cluster
    sequences = 2.0 ** rng.integers(2, 10, count)
    jobs = [Job(cluster, model, "bf16", 1.0, 1.0, 1.0, False, one, 1.0, 500.0) for one in sequences]
    kernels = rng.uniform(3e-3, 0.05, count)
    zero = np.zeros(count)
    near = DrawnPower(kernels, zero, kernels, kernels * rng.uniform(1e13, 4e14, count), zero, zero,
                 kernels * rng.uniform(1e12, 3e12, count), zero)  # fmt: skip
    far = DrawnPower(*(1.2 * part for part in near))
    names = np.full(count, "H100-SXM")
    seen = PowerRows(decoded(jobs), names, names, zero, zero, zero, np.ones(count), near, far)
    return seen._replace(step_s=seen.steps_s(SAMPLED))


SAMPLED = Sampled(6e-3, 4e-10, 0.0, 80.0)


@pytest.mark.slow
def test_constants_of_boards_and_of_sampling_are_recovered():
    model = scenario_from_config("model=llama31_8b", "experiment=serve_llama31_405b").workload.model
    seen = made(120, model)
    times = fit_times(seen)
    assert times.step_overhead_s == pytest.approx(6e-3, rel=0.02)
    assert times.sampling_s == pytest.approx(4e-10, rel=0.02)
    first = fit_boards(seen._replace(watts=np.full(120, 500.0)), times, {"H100-SXM": 700.0})["H100-SXM"]
    truth = first._replace(idle_w=140.0, working_w=220.0, energy_j_per_flop={"bf16": 4e-13, "fp8": 2e-13},
                           energy_j_per_byte=40e-12)  # fmt: skip
    watts, joules = predicted(seen, times, {"H100-SXM": truth})
    assert joules == pytest.approx(watts * seen.steps_s(times))
    result = fit_boards(seen._replace(watts=watts), times, {"H100-SXM": 700.0})["H100-SXM"]
    assert result.idle_w == pytest.approx(140.0, rel=0.05)
    assert result.working_w == pytest.approx(220.0, rel=0.05)
    assert result.energy_j_per_flop["bf16"] == pytest.approx(4e-13, rel=0.05)


def test_a_folder_of_a_few_rows_has_no_board_and_no_error():
    """A user's four rows: nothing is left to fit on when a device's model is left out, and that is said by nan."""
    model = scenario_from_config("model=llama31_8b", "experiment=serve_llama31_405b").workload.model
    few = made(4, model)._replace(watts=np.full(4, 500.0))
    assert fit_boards(few, SAMPLED, {"H100-SXM": 700.0}) == {}
    for rows in left_out(few, {"H100-SXM": 700.0}):
        assert np.isnan(rows).all()


@pytest.mark.parametrize(("other", "limit"), [("gb200", 1200.0), ("b300", 1100.0)])
def test_one_chip_on_boards_of_two_limits_follows_the_cube_root(reference_dir, other, limit):
    """Products beyond 10^12 FLOPs on B200 (1000 W) and on another board of the same silicon."""
    folder = reference_dir / "measured" / "kernels"
    one, two = (pd.read_csv(folder / f"gemm_{name}.csv") for name in ("b200", other))
    both = one.merge(two, on=["framework", "dtype", "m", "n", "k"])
    both = both[(2.0 * both.m * both.n * both.k > 1e12) & both.dtype.isin(["bfloat16", "fp8"])]
    assert len(both) >= 15
    idle = read_yaml((conf_dir() / "calibration" / "power" / "b200.yaml").read_text())["idle_w"]
    expected = ((limit - idle) / (1000.0 - idle)) ** (1 / 3)
    assert float((both.latency_us_x / both.latency_us_y).median()) == pytest.approx(expected, rel=0.03)
