"""Continuous batching: shares of steps by hand, times put together from them, and the simulation beside them."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster, gpt3

from codesign.config import check_plan, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.model.metrics.simulated import tabulated_steps
from codesign.model.scenario import Scenario
from codesign.model.workloads import ContinuousServing, LatentAttention, MixtureOfExperts, Plan
from codesign.model.workloads.steady_state import chunks, length_nodes, steady_state
from codesign.simulation.serving import Engine, Requests, simulate_closed
from codesign.study.feasible_plans import Rules

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import serving as benchmark


def scenario(plan: Plan | None = None, devices: float = 16.0, **changes) -> Scenario:
    work = ContinuousServing(**({"model": gpt3(), "input_tokens": 1024.0, "output_tokens": 257.0} | changes))
    return Scenario(cluster(devices), work, plan or Plan(tp=16.0, micro_batch=16.0, token_budget=512.0))


def experts() -> MixtureOfExperts:
    return MixtureOfExperts(16.0, 4.0, 2048.0)


def state(decodes, steps, tokens, cv, chunk):
    return steady_state(*(jnp.asarray(float(x)) for x in (decodes, steps, tokens, cv, chunk)))


def test_prompts_that_meet_nobody():
    """Few prompts of exactly four chunks: four steps each, no room lost, no wait."""
    result = state(1.0, 4000.0, 2048.0, 0.0, 512.0)
    assert float(result.own_steps) == 4
    assert float(result.load) == pytest.approx(4 / 4000)
    assert float(result.share) == pytest.approx(4 / 4000, rel=1e-3)
    assert float(result.waiting_steps) == 0  # nobody else is there
    assert float(result.tokens) == 512


def test_many_short_prompts_share_a_step():
    """Two come in a step that takes all: a step is without prompts with probability exp(-2)."""
    result = state(128.0, 64.0, 50.0, 0.0, 8192.0)
    assert float(result.share) == pytest.approx(1 - np.exp(-2), rel=0.02)
    assert float(result.tokens * result.share) == pytest.approx(2 * 50)


def test_a_full_room_waits_but_ends():
    """The wait is that of Pollaczek and Khinchine with endless decodes, and finite where as many as decode may wait."""
    endless, few = (state(b, b * 500.0, 1000.0, 0.5, 4.0 / 3.0) for b in (1e6, 8.0))
    expected = 1.5 * 750 * 1.25 / 2 / 2  # rho 1.5 is more than full: refused by a rule
    assert float(endless.load) == pytest.approx(1.5)
    assert np.isfinite(float(few.waiting_steps))
    assert float(few.waiting_steps) < expected * 1e3
    busy = state(1e6, 1e6 * 10, 1000.0, 0.5, 200.0)
    assert float(busy.waiting_steps) == pytest.approx(0.5 * 5 * 1.25 / (2 * 0.5), rel=1e-3)


def test_lengths_keep_their_mean_and_variation():
    nodes = np.array([float(one) for one in length_nodes(jnp.asarray(1000.0), jnp.asarray(0.5))])
    assert nodes.mean() == pytest.approx(1000)
    assert nodes.std() / nodes.mean() == pytest.approx(0.5, rel=0.12)  # tails of 16 quantiles
    assert float(chunks(jnp.asarray(1000.0), jnp.asarray(0.0), jnp.asarray(300.0))) == 4


@pytest.mark.slow
def test_times_are_put_together_from_two_steps():
    design = scenario()
    metrics, rhythm = evaluate(design).flat(), design.workload.rhythm(design.layout)
    steps = tabulated_steps(design)
    context = 1024 + 0.5 * 257
    plain = steps.linear_s(16, 0) + steps.context_s(16) * 16 * context
    mixed = steps.linear_s(16, 512) + steps.context_s(16) * 16 * context + steps.pair_s * 512 * 512
    share = float(rhythm.met * rhythm.state.counted)
    assert float(metrics["tpot_s"]) == pytest.approx((1 - share) * plain + share * mixed, rel=2e-3)
    assert float(rhythm.state.own_counted) == 1  # two whole chunks
    assert float(metrics["ttft_s"]) == pytest.approx((2 + float(rhythm.state.waiting_steps)) * mixed, rel=5e-3)
    assert sum(v for k, v in metrics.items() if k.startswith("breakdown_s")) == pytest.approx(metrics["time_s"])
    assert float(metrics["tokens_per_s"]) == pytest.approx(float(metrics["requests_per_s"]) * 257)
    assert float(metrics["concurrency"]) == pytest.approx(16 + float(metrics["requests_per_s"] * metrics["ttft_s"]))


def test_prompts_and_answers_pay_for_all():
    metrics = evaluate(scenario()).flat()
    parts = 1024 * metrics["usd_per_million_input_tokens"] + 257 * metrics["usd_per_million_output_tokens"]
    assert float(parts) == pytest.approx(257 * float(metrics["usd_per_million_tokens"]))
    assert 0 < float(metrics["usd_per_million_input_tokens"]) < float(metrics["usd_per_million_output_tokens"])


def test_cached_prompts_take_less_time_and_the_same_room():
    plain, cached = (evaluate(scenario(cached_ratio=share)).flat() for share in (0.0, 0.75))
    assert float(cached["ttft_s"]) < 0.6 * float(plain["ttft_s"])
    assert float(cached["tpot_s"]) < float(plain["tpot_s"])
    held = "memory_bytes.hbm/kv_cache"
    assert float(cached[held]) == pytest.approx(float(plain[held]), rel=0.02)


def test_speculation_divides_time_by_what_is_accepted():
    plain = evaluate(scenario()).flat()
    twice = evaluate(scenario(accepted_tokens=2.0, verified_tokens=3.0, draft_ratio=0.1)).flat()
    assert 0.5 < float(twice["tpot_s"] / plain["tpot_s"]) < 0.75


@pytest.mark.slow
@pytest.mark.parametrize(("feed_forward", "times"), [(None, 1), (experts(), 3)])
def test_a_model_without_experts_has_one_way_to_spread_them(feed_forward, times):
    """Every degree is legal; without experts they cost the same."""
    model = gpt3() if feed_forward is None else gpt3(feed_forward=feed_forward)
    degrees = np.array([1.0, 4.0, 8.0])
    listed = {"tp": np.full(3, 1.0), "ep": degrees, "micro_batch": np.full(3, 16.0)}
    result, _ = Rules({name: np.unique(values) for name, values in listed.items()}, scenario(model=model))(listed)
    assert result.tolist() == [True, True, True]
    plans = [scenario(Plan(ep=ep, micro_batch=16.0, token_budget=2048.0), model=model) for ep in degrees.tolist()]
    assert len({float(evaluate(plan).time_s) for plan in plans}) == times


def test_attention_groups_hold_the_latent_cache_once():
    """Latent vectors lie on every tensor rank: with eight groups each rank holds an eighth of the sequences."""
    latent = LatentAttention(96.0, 1536.0, 512.0, 128.0, 64.0, 128.0)
    model = gpt3(attention=latent, feed_forward=experts())
    joint, apart = (
        evaluate(scenario(Plan(tp=8.0, micro_batch=64.0, token_budget=512.0, attention_dp=groups), model=model)).flat()
        for groups in (1.0, 8.0)
    )
    held = "memory_bytes.hbm/kv_cache"
    assert float(joint[held] / apart[held]) == pytest.approx(8, rel=0.05)
    assert float(apart["memory_bytes.hbm/weights"]) > float(joint["memory_bytes.hbm/weights"])
    assert float(apart["hybrid_step_share"]) > 0
    assert float(apart["violations.attention_groups"]) == 0


def test_replicas_that_share_experts_step_together():
    alone, shared = (
        evaluate(scenario(Plan(tp=2.0, ep=ep, micro_batch=16.0), model=gpt3(feed_forward=experts()))).flat()
        for ep in (1.0, 8.0)
    )
    share = float(alone["hybrid_step_share"])
    assert float(shared["hybrid_step_share"]) == pytest.approx(1 - (1 - share) ** 8)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(tp=8.0, pp=2.0, micro_batch=1.0), ["plan.micro_batch = 1", "pp 2", "at least 2"]),
        (Plan(tp=8.0, attention_dp=3.0, micro_batch=16.0), ["plan.attention_dp = 3", "plan.tp = 8"]),
    ],
)
def test_plans_that_cannot_be_served(plan, words):
    with pytest.raises(ConfigError) as error:
        check_plan(scenario(plan))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def heavy(clients: float) -> tuple[Scenario, dict[str, float]]:
    """Prompts of 8 steps, answers of 24: from 3 clients on, prompts ask for more than steps take."""
    plan = Plan(tp=16.0, micro_batch=clients, token_budget=1024.0)
    design = scenario(plan, input_tokens=8192.0, output_tokens=25.0)
    return design, {name: float(value) for name, value in evaluate(design).flat().items()}


def test_clients_wait_where_prompts_ask_for_more_than_steps_take():
    """Every step is full, so that more clients wait longer, and nothing else changes."""
    (_, few), (_, many) = heavy(16.0), heavy(64.0)
    assert few["tpot_s"] == pytest.approx(many["tpot_s"], rel=1e-12)
    assert few["tokens_per_s"] == pytest.approx(many["tokens_per_s"], rel=1e-12)
    for clients, result in ((16.0, few), (64.0, many)):
        assert result["hybrid_step_share"] == pytest.approx(1.0, abs=1e-5)
        assert result["concurrency"] == pytest.approx(clients, rel=1e-5)  # Little's law
        assert result["e2e_s"] == pytest.approx(clients * 8 * result["tpot_s"], rel=1e-5)  # all prompts, one by one


def test_one_client_meets_nobody_however_long_its_prompts_are():
    plan = Plan(tp=16.0, micro_batch=1.0, token_budget=1024.0)
    design = scenario(plan, input_tokens=8192.0, output_tokens=5.0)
    steps, result = tabulated_steps(design), evaluate(design).flat()
    plain = steps.linear_s(1, 0) + steps.context_s(1) * (8192 + 0.5 * 5)
    assert float(result["tpot_s"]) == pytest.approx(float(plain), rel=5e-3)
    assert float(result["ttft_s"]) > 8 * float(plain)


@pytest.mark.slow
def test_a_model_that_was_trained_is_served_as_any_other_where_clients_wait():
    """A workload that hands everything to another one lays out the same steps, in times, traffic and memory."""
    job = ("model=llama31_8b", "accelerator=h200", "framework=vllm", "cluster.device_count=8", "plan=serving_node",
           "plan.tp=1", "plan.micro_batch=64", "workload.input_tokens=8192", "workload.output_tokens=25")  # fmt: skip
    one, other = (
        evaluate(scenario_from_config(f"workload={name}", *job)).flat() for name in ("continuous", "served_run")
    )
    assert float(one["hybrid_step_share"]) > 0.999
    for name in one:
        assert float(other[name]) == pytest.approx(float(one[name]), rel=1e-12), name


@pytest.mark.parametrize("clients", [4, 16, 64])
def test_the_simulation_of_heavy_prompts_waits_as_long(clients):
    design, result = heavy(float(clients))
    requests = Requests(np.full(30 * clients, 8192), np.full(30 * clients, 25))
    seen = simulate_closed(Engine(tabulated_steps(design), budget=1024), requests, clients)
    assert seen.tpot_s.mean() == pytest.approx(result["tpot_s"], rel=0.06)
    assert seen.ttft_s.mean() + 24 * seen.tpot_s.mean() == pytest.approx(result["e2e_s"], rel=0.06)


def test_the_advice_is_followed_by_a_legal_plan():
    """Prompts beside decodes of a deployment with pools are sized for what comes: there they must keep up."""
    job = ("workload=disaggregated", "prefill=same", "plan.prefill_devices=0", "plan=serving_node", "plan.tp=8",
           "cluster.device_count=64", "model=llama31_70b")  # fmt: skip
    tight = ("plan.micro_batch=512", "plan.token_budget=64")
    with pytest.raises(ConfigError, match="prefill is overloaded: 2,052 prompt tokens") as error:
        check_plan(scenario_from_config(*job, *tight))
    chunk, batch = (
        int(str(error.value).split(key)[1].split()[0]) for key in ("plan.token_budget of ", "plan.micro_batch of ")
    )
    check_plan(scenario_from_config(*job, tight[0], f"plan.token_budget={chunk}"))
    check_plan(scenario_from_config(*job, f"plan.micro_batch={batch}", tight[1]))


@pytest.mark.slow
def test_the_closed_form_is_near_the_simulation(monkeypatch):
    """A cheap sample of `benchmarks/serving.py`; its bars are 2 and 5 per cent."""
    monkeypatch.setattr(benchmark, "REQUESTS", 2500)
    result = benchmark.errors(benchmark.closed_loop(16, 5), "closed")
    assert result["median"]["tpot_s"] < 0.02
    assert result["median"]["ttft_s"] < 0.07
    assert result["p90"]["tpot_s"] < 0.05
