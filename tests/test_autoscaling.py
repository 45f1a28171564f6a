"""Autoscaling policies and the bound that none beats: by hand, and against simulated policies."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.commands.day import BOUND, steepest
from codesign.core.errors import ConfigError
from codesign.simulation.fleet import (
    KeepSLO,
    LatencyLimits,
    Scaling,
    ScheduledScaling,
    TargetUtilisation,
    by_profile,
    least_replicas,
    least_work,
    simulate_fleet,
)
from codesign.simulation.serving import Engine, Requests, TabulatedSteps, lengths

TABLE = TabulatedSteps(
    [0.0, 16.0, 64.0], [0.0, 512.0, 1024.0],
    np.array([[6e-3, 1.5e-2, 2.6e-2], [7e-3, 1.6e-2, 2.7e-2], [9e-3, 1.9e-2, 3e-2]]), np.full(3, 2e-9), 1e-10,
)  # fmt: skip
ENGINE = Engine(TABLE, budget=10**9, chunk=1024, sequences=64)
RATES, INTERVAL_S = (10.0, 60.0, 25.0), 120.0
AGREED = LatencyLimits(0.5, 0.02, 0.99)

DESIGN = (
    "model=llama31_8b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "workload=goodput",
    "cluster.device_count=1", "plan.tp=1", "plan.pp=1", "plan.micro_batch=32", "plan.token_budget=2048",
    "workload.input_tokens=1024", "workload.output_tokens=64", "workload.slo.ttft_s=1", "workload.slo.tpot_s=0.02",
)  # fmt: skip


@functools.cache
def day() -> Requests:
    rng = np.random.default_rng(0)
    came = by_profile(rng, RATES, INTERVAL_S, cv=1.5)
    count = len(came)
    return Requests(lengths(rng, 400, 0.5, count), lengths(rng, 60, 0.5, count, 2), came)


def test_work_by_hand():
    """A step of 64 decodes takes 9 ms, a chunk of 1,024 tokens 26 ms: requests of one kind need shares of either."""
    engine = dataclasses.replace(ENGINE, times=dataclasses.replace(TABLE, context=np.zeros(3), pair_s=0.0))
    decodes = Requests(np.full(10, 1), np.full(10, 10**6 + 1), np.arange(10.0))
    prompt, decode = least_work(engine, decodes)
    assert decode == pytest.approx(10**6 * 9e-3 / 64, rel=1e-4)
    prompts = Requests(np.full(10, 10**6), np.full(10, 1), np.arange(10.0))
    prompt, decode = least_work(engine, prompts)
    assert prompt == pytest.approx(10**6 * 2.6e-2 / 1024, rel=1e-4)
    assert decode == pytest.approx(0)
    # with 8 ms a token no step may decode more than 40: 8 ms / 40 each
    _, slower = least_work(engine, decodes, 8e-3)
    assert slower == pytest.approx(10**6 * 8e-3 / 40, rel=1e-2)


def test_programme_by_hand():
    """A rate that is constant needs its work a second of replicas, and one that is small the fewest that there are."""
    came = np.arange(1, 40_001) / 200.0
    requests = Requests(np.full(40_000, 400), np.full(40_000, 60), came)
    work = sum(part.sum() for part in least_work(ENGINE, requests, AGREED.tpot_s))
    free = Scaling(KeepSLO(), start_s=0.0)
    bound = least_replicas(ENGINE, requests, dataclasses.replace(AGREED, share=1.0), free, initial=64)
    assert work / 200 > 1
    assert bound.replica_s == pytest.approx(work, rel=0.02)
    started = least_replicas(ENGINE, requests, AGREED, dataclasses.replace(free, start_s=30.0), initial=1)
    assert started.replica_s > 0.95 * (work + 30.0 * (work / 200 - 1))
    few = Requests(requests.prompts[::400], requests.outputs[::400], came[::400])
    assert least_replicas(ENGINE, few, AGREED, free).replica_s == pytest.approx(few.arrivals[-1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("start_s", [0.0, 30.0])
def test_no_policy_that_keeps_the_limits_beats_the_bound(start_s):
    requests, result = day(), []
    good_for = 14.0
    policies = [TargetUtilisation(good_for, share, 60.0) for share in (0.5, 0.8, 1.1)]
    policies += [ScheduledScaling(RATES, INTERVAL_S, good_for, share, 5.0) for share in (0.6, 0.9, 1.2, 1.5, 1.8)]
    policies += [KeepSLO(calm_s=60.0)]
    for policy in policies:
        scaling = Scaling(policy, every_s=5.0, start_s=start_s, slo=(AGREED.ttft_s, AGREED.tpot_s))
        served = simulate_fleet(ENGINE, requests, "least_outstanding", replicas=1, scaling=scaling)
        kept = served.attainment(AGREED, 0.0)
        bound = least_replicas(ENGINE, requests, dataclasses.replace(AGREED, share=min(kept, 1.0)), scaling)
        assert bound.replica_s <= served.replica_s
        result.append((kept, served.replica_s))
    best = min(paid for kept, paid in result if kept >= 0.9)
    bound = least_replicas(ENGINE, requests, dataclasses.replace(AGREED, share=0.9), scaling)
    assert best / 3 < bound.replica_s <= best


def test_what_has_no_bound_is_one_line():
    long = dataclasses.replace(day(), prompts=day().prompts * 20)
    with pytest.raises(ConfigError, match="no number of replicas up to 1"):
        least_replicas(ENGINE, long, AGREED, Scaling(KeepSLO(), most=1))
    with pytest.raises(ConfigError, match="come at times which are known"):
        least_replicas(ENGINE, dataclasses.replace(day(), arrivals=None), AGREED, Scaling(KeepSLO()))


@pytest.mark.slow
def test_policies_of_a_day_from_the_command_line(tmp_path, capsys):
    load = tmp_path / "load.yaml"
    load.write_text("[0.5, 1, 4]", encoding="utf-8")
    words = ["autoscale", *DESIGN, "--load", str(load), "--start", "1min", "--json"]
    assert main(words) == 0
    rows = {row["policy"]: row for row in json.loads(capsys.readouterr().out)["policies"]}
    bound = rows[BOUND]
    kept = [row for row in rows.values() if row["kept"] >= bound["kept"] and row is not bound]
    assert kept
    assert all(bound["replica_hours"] <= row["replica_hours"] for row in kept)
    assert bound["hours"] == 3
    assert main([*words[:-1], "--start", "soon"]) == 2
    assert "--start 'soon' is no number above 0" in capsys.readouterr().err


def test_hours_that_are_simulated_are_the_steepest():
    assert steepest(np.array([20.0, 20.0, 21.0, 60.0, 61.0])).tolist() == [2, 3]
    assert steepest(np.array([1.0, 2.0])).tolist() == [0, 1]
