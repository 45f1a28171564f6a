"""`codesign autoscale` of two pools: the fewest engines of each that meet an SLO, hour by hour."""

import json

import numpy as np
import pytest

from codesign.commands.cli import main
from codesign.commands.day import Size, day, hours, replica_devices, served, sizes
from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError

DESIGN = (
    "calibration=h100_sxm_roofline", "model=llama31_8b", "plan=serving_node", "prefill=same", "cluster.device_count=4",
    "workload=disaggregated_goodput", "plan.tp=1", "plan.pp=1", "plan.micro_batch=64", "plan.prefill_devices=2",
    "plan.prefill_tp=1", "plan.prefill_pp=1", "workload.input_cv=0.5", "workload.output_cv=0.5",
    "workload.slo.ttft_s=0.6", "workload.slo.tpot_s=0.03",
)  # fmt: skip
RATES = np.array([2.0, 30.0, 75.0])


@pytest.fixture(scope="module")
def design():
    return scenario_from_config(*DESIGN)


@pytest.fixture(scope="module")
def table(design):
    return hours(design, RATES)


def keeps(design, rate: float, decode: float, prefill: float) -> bool:
    result = served(design, rate, Size(decode, prefill))
    busy = max(result["usage.engine.decodes"], result["usage.engine.prompts"])
    return busy < 1 and result["ttft_p99_s"] <= 0.6 and result["tpot_p99_s"] <= 0.03


@pytest.mark.slow
def test_every_hour_keeps_the_agreement_and_no_smaller_pools_do(design, table):
    """All pairs up to one more of each, one by one."""
    assert replica_devices(design) == Size(1.0, 1.0)
    assert table["accelerators"].is_monotonic_increasing
    assert table["accelerators"].iloc[0] < table["accelerators"].iloc[-1]
    for _, row in table.iterrows():
        pair = (row["replicas"], row["prompt_engines"])
        assert keeps(design, row["requests_per_s"], *pair)
        least = min(
            (decode + prefill, decode, prefill)
            for decode in np.arange(1.0, pair[0] + 2)
            for prefill in np.arange(1.0, pair[1] + 2)
            if keeps(design, row["requests_per_s"], decode, prefill)
        )
        assert least[1:] == pair


@pytest.mark.slow
def test_money_of_both_pools(design, table):
    told = day(design, table)
    most = table["replicas"].max() + table["prompt_engines"].max()
    assert told["peak"]["accelerator_hours"] == len(RATES) * most
    assert told["hourly"]["accelerator_hours"] == table["accelerators"].sum()
    assert told["owned"]["usd_accelerators"] == told["peak"]["usd_accelerators"]
    assert told["hourly"]["usd_accelerators"] < told["owned"]["usd_accelerators"]


@pytest.mark.slow
def test_limits_that_no_pool_keeps_are_refused_in_a_line():
    tight = scenario_from_config(*DESIGN, "workload.slo.tpot_s=0.0001")
    with pytest.raises(ConfigError, match=r"workload.slo.tpot_s = 0.0001 s is kept by no 16,384") as error:
        sizes(tight, RATES)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_command_tells_both_pools(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "load.yaml").write_text("[2, 30]\n")
    assert main(["autoscale", *DESIGN, "--load", "load.yaml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["hour"] for row in told["hours"]] == [0, 1]
    assert all(row["prompt_engines"] >= 1 for row in told["hours"])
    assert main(["autoscale", *DESIGN, "--load", "load.yaml"]) == 0
    assert "prefill" in capsys.readouterr().out
