"""What `codesign evaluate model=...` begins with where the plan that came along does not suit the model."""

import json

import numpy as np
import pytest

from codesign import scenario_from_config
from codesign.commands.cli import main
from codesign.config import check_plan
from codesign.config.legal_start import legal_start, nearest


def test_fewest_fields_then_the_least_factor():
    plans = {"pp": np.array([4, 8, 8, 16]), "virtual_stages": np.array([3, 1, 2, 3]), "tp": np.array([8, 8, 8, 1])}
    own = {"pp": 8.0, "virtual_stages": 3.0, "tp": 8.0}
    assert nearest(own, plans) == {"pp": 8.0, "virtual_stages": 2.0, "tp": 8.0}


def test_a_plan_nobody_chose_gives_way_and_one_that_was_chosen_stays():
    asked = ["model=llama31_70b"]  # 80 layers, 8 stages of 3 parts
    scenario = scenario_from_config(*asked)
    result, line = legal_start(scenario, asked)
    check_plan(result)
    assert float(result.plan.virtual_stages) == 2
    assert "priced with plan.virtual_stages=2 instead" in line
    for chosen in (["plan=megatron_3d"], ["experiment=train_gpt3_175b"]):
        assert legal_start(scenario, [*asked, *chosen]) == (scenario, "")


@pytest.mark.slow
def test_a_field_that_was_chosen_stays_and_the_others_give_way():
    asked = ["model=mixtral_8x7b", "plan.ep=8"]  # 32 layers, 8 stages of 3 parts
    result, line = legal_start(scenario_from_config(*asked), asked)
    check_plan(result)
    assert float(result.plan.ep) == 8
    assert "priced with" in line
    alone = ["model=llama31_70b", "plan.pp=8", "plan.virtual_stages=3"]  # nothing is left to give way
    scenario = scenario_from_config(*alone)
    assert legal_start(scenario, alone) == (scenario, "")


@pytest.mark.slow
def test_experts_of_a_mixture_that_nobody_cut_are_spread():
    """The default plan's eight tensor ranks would keep a part of each of 128 experts on every rank."""
    design = ["model=gpt_oss_120b", "accelerator=h100_sxm", "cluster.device_count=64", "workload=training"]
    scenario = scenario_from_config(*design)
    result, line = legal_start(scenario, design)
    assert (float(result.plan.tp), float(result.plan.ep)) == (1.0, 8.0)
    assert line.startswith("assumed: plan.tp=1 plan.ep=8")
    cut = [*design, "plan.tp=8"]
    assert float(legal_start(scenario_from_config(*cut), cut)[0].plan.tp) == 8.0


@pytest.mark.slow
def test_an_engine_under_a_rate_serves_as_many_at_once_as_it_has_room_for():
    """1,024 on devices of 70 GiB, 256 on A100 and smaller ones; fewer where the cache is full, by hand."""
    base = ["model=llama31_8b", "workload=at_rate", "cluster.device_count=1", "plan.tp=1", "framework=vllm_async"]

    def places(*words: str) -> tuple[float, str]:
        design = [*base, *words]
        scenario, line = legal_start(scenario_from_config(*design), design)
        return float(scenario.plan.micro_batch), line

    short = ("workload.input_tokens=100", "workload.output_tokens=100")
    assert places("accelerator=h200", *short)[0] == 1024
    assert places("accelerator=a100_80gb", *short)[0] == 256
    assert places("accelerator=h200", *short, "plan.micro_batch=48") == (48, "")
    long = ("workload.input_tokens=8192", "workload.output_tokens=1024")
    room, line = places("accelerator=h100_sxm", *long)
    assert "for which the cache has room" in line
    a_sequence = (8192 + 1024) * 2 * 8 * 128 * 2 * 32  # bytes of keys and values of 32 layers, 8 heads of 128
    assert room == pytest.approx((85.9e9 * 0.9 - 16.1e9) / a_sequence, rel=0.15)


def test_a_plan_that_suits_stays():
    asked = ["accelerator=h200"]
    scenario = scenario_from_config(*asked)
    assert legal_start(scenario, asked) == (scenario, "")


CROWDED = ["accelerator=h100_sxm", "model=llama31_8b", "devices=1", "isl=4096", "osl=512"]


@pytest.mark.slow
def test_clients_that_the_cache_has_no_room_for_wait(capsys):
    """By Little's law each waits for the service of all before it: 1,024 / places - 1 services."""
    assert main(["evaluate", *CROWDED, "concurrency=1024", "--json"]) == 0
    crowded = capsys.readouterr()
    (line,) = (line for line in crowded.err.splitlines() if "clients, the others wait" in line)
    changes = line.partition("(")[2].rstrip(")").split()
    places = float(changes[0].partition("=")[2])
    assert 16 < places < 1024
    assert main(["evaluate", *CROWDED, f"plan.micro_batch={places:g}", "--json"]) == 0
    roomy = json.loads(capsys.readouterr().out)
    numbers = json.loads(crowded.out)
    assert numbers["tpot_s"] == pytest.approx(roomy["tpot_s"], rel=1e-9)
    assert numbers["tokens_per_s"] == pytest.approx(roomy["tokens_per_s"], rel=0.02)
    waited = (1024 / places - 1) * (roomy["ttft_s"] + 511 * roomy["tpot_s"])
    assert numbers["ttft_s"] - roomy["ttft_s"] == pytest.approx(waited, rel=0.1)
    assert main(["evaluate", *CROWDED, *changes, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ttft_s"] == pytest.approx(numbers["ttft_s"], rel=1e-3)


@pytest.mark.slow
def test_places_of_an_engine_that_do_not_fit_are_refused(capsys):
    assert main(["evaluate", *CROWDED, "plan.micro_batch=1024"]) == 2
    assert "smallest change that fits: plan.micro_batch=" in capsys.readouterr().err
