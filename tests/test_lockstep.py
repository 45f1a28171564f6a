"""Clients of a closed loop that stay in step: by hand, in metrics, in a certificate, and beside the simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster, gpt3

from codesign.config import compose, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import get_path
from codesign.core.fields import replace as with_leaves
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.model.metrics.simulated import tabulated_steps
from codesign.model.scenario import Scenario
from codesign.model.workloads import ContinuousServing, Lockstep, Plan
from codesign.simulation.serving import Engine, Requests, simulate_closed

CLIENTS = 16


def scenario(clients: Lockstep | None = None, **changes: float) -> Scenario:
    lengths = {"input_tokens": 1024.0, "output_tokens": 257.0} | changes
    work = ContinuousServing(gpt3(), **lengths, clients=clients or Lockstep())
    return Scenario(cluster(16.0), work, Plan(tp=16.0, micro_batch=float(CLIENTS), token_budget=2048.0))


def times(design: Scenario) -> tuple[float, float]:
    extra = evaluate(design).extra
    return float(extra["ttft_s"]), float(extra["tpot_s"])


@pytest.mark.parametrize(("requests", "varied", "prompts"), [
    (1.0, False, 0.0),  # nobody else
    (8.0, False, (3.0 + 0.2 * 7.0) / 2),  # four come together, a fifth of the run is as at its start
    (8.0, True, 0.2 * 7.0 / 2),  # lengths that vary part those who came together
    (2.0, False, (1.0 + 0.2) / 2),  # no more come together than there are
])  # fmt: skip
def test_prompts_that_one_waits_for(requests, varied, prompts):
    result = Lockstep(burst_ratio=0.2, cohort_prompts=4.0).prompts_before(jnp.asarray(requests), jnp.asarray(varied))
    assert float(result) == pytest.approx(prompts)


def test_a_run_of_few_rounds_is_longer_as_at_its_start():
    """A third of a run of three rounds; one round is all start, however the engine was measured."""
    few, one = (Lockstep(burst_ratio=0.1, rounds=rounds) for rounds in (3.0, 0.5))
    assert float(few.prompts_before(jnp.asarray(7.0), jnp.asarray(True))) == pytest.approx(6.0 / 3 / 2)
    assert float(one.prompts_before(jnp.asarray(7.0), jnp.asarray(True))) == pytest.approx(3.0)


def test_nobody_waits_for_more_prompts_than_there_are_others():
    result = Lockstep(burst_ratio=1.0, cohort_prompts=100.0).prompts_before(jnp.asarray(8.0), jnp.asarray(False))
    assert float(result) == pytest.approx(7.0)


def test_who_is_not_in_step_is_as_without_it():
    assert times(scenario()) == times(scenario(Lockstep(burst_ratio=0.0, cohort_prompts=1.0)))


def test_what_is_waited_for_before_the_first_token_is_not_met_between_tokens():
    """All others' prompts are waited for, so that none is met: a token takes a step without prompts."""
    design = scenario(Lockstep(burst_ratio=1.0, cohort_prompts=float(CLIENTS)))
    steps = tabulated_steps(design)
    alone = steps.linear_s(CLIENTS, 0) + steps.context_s(CLIENTS) * CLIENTS * (1024 + 0.5 * 257)
    first, between = times(design)
    waited = (CLIENTS - 1) / CLIENTS
    plain = times(scenario())
    assert between == pytest.approx(waited * alone + (1 - waited) * plain[1], rel=2e-3)
    assert first > 8 * plain[0]


def test_clients_cost_the_host_and_wait_for_a_place():
    plain, host = times(scenario()), times(scenario(Lockstep(client_overhead_s=2e-3)))
    assert (host[0] - plain[0], host[1]) == (pytest.approx(15 * 2e-3), plain[1])
    queued = times(scenario(Lockstep(queued_ratio=0.5)))
    assert queued[0] == pytest.approx(plain[0] + 0.5 * (plain[0] + 256 * plain[1]))
    both = times(scenario(Lockstep(client_overhead_s=2e-3, queued_ratio=0.5)))
    assert both[0] - queued[0] == pytest.approx(23 * 2e-3)


@pytest.mark.parametrize("rounds", [5, 20])
def test_the_simulation_of_a_run_of_so_many_rounds_waits_as_long(rounds):
    """All start at once and fall out of step while they are served: one round of the run is as at its start."""
    design = scenario(Lockstep(rounds=float(rounds)))
    count = rounds * CLIENTS
    requests = Requests(np.full(count, 1024), np.full(count, 257))
    result = simulate_closed(Engine(tabulated_steps(design), budget=2048), requests, CLIENTS)
    first, between = times(design)
    assert result.ttft_s.mean() == pytest.approx(first, rel=0.15)
    assert result.tpot_s.mean() == pytest.approx(between, rel=0.02)
    assert result.ttft_s.mean() > 1.3 * times(scenario())[0]  # evenly spread clients wait less


@pytest.mark.slow
def test_slopes_by_differences_and_the_same_in_every_way_of_calling():
    design = scenario(Lockstep(burst_ratio=0.3, cohort_prompts=4.0, client_overhead_s=1e-3, queued_ratio=0.25))
    path = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
    at = float(design.cluster.accelerator.hbm.bandwidth_bytes_per_s)

    def first(log_rate):
        return evaluate(with_leaves(design, {path: jnp.exp(log_rate)})).extra["ttft_s"]

    here, step = jnp.log(at), 1e-5
    slope = float(interpreted(jax.grad(first), always=True)(here))
    assert slope == pytest.approx(float(first(here + step) - first(here - step)) / (2 * step), rel=1e-5)
    plain, compiled = float(first(here)), float(jax.jit(first)(here))
    assert compiled == pytest.approx(plain, rel=1e-12)
    assert np.asarray(jax.vmap(first)(jnp.stack([here, here]))) == pytest.approx([plain, plain], rel=1e-12)


@pytest.mark.slow
def test_an_engine_brings_its_clients_where_a_loop_is_closed():
    asked = ("model=llama31_8b", "workload=continuous", "framework=vllm", "cluster.device_count=8")
    clients = compose([*asked]).workload.clients
    assert clients._target_.endswith("Lockstep")
    assert clients.burst_ratio > 0
    assert "clients" not in compose([*asked, "workload=at_rate"]).workload
    assert float(scenario_from_config(*asked, "workload.clients.burst_ratio=0.5").workload.clients.burst_ratio) == 0.5
    assert "clients" not in compose([*asked, "framework=none"]).workload


@pytest.mark.slow
def test_a_wait_in_step_keeps_times_log_convex_in_hardware():
    """Midpoints of pairs of designs: the wait is a constant of the plan times the time of a step."""
    design = scenario(Lockstep(burst_ratio=0.3, cohort_prompts=4.0, client_overhead_s=1e-3, queued_ratio=0.25))
    paths = ("cluster.accelerator.hbm.bandwidth_bytes_per_s", "cluster.network.scale_up.fabric.bandwidth_bytes_per_s")
    base = jnp.log(jnp.array([float(get_path(design, path)) for path in paths]))

    @jax.jit
    @jax.vmap
    def told(logs):
        extra = evaluate(with_leaves(design, dict(zip(paths, jnp.exp(logs), strict=True)))).extra
        return jnp.log(extra["ttft_s"]), jnp.log(extra["tpot_s"])

    rng = np.random.default_rng(0)
    ends = base + rng.uniform(-1.5, 1.5, (2, 200, 2))
    low, high, middle = (np.array(told(jnp.asarray(at))) for at in (ends[0], ends[1], ends.mean(0)))
    assert (middle <= (low + high) / 2 + 1e-9).all()


def test_a_share_in_step_beyond_all_is_refused():
    with pytest.raises(ConfigError, match="burst_ratio"):
        scenario_from_config(
            "model=llama31_8b", "workload=continuous", "framework=vllm", "workload.clients.burst_ratio=2"
        )
