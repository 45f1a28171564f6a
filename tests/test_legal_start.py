"""What `codesign evaluate model=...` begins with where the plan that came along does not suit the model."""

import numpy as np
import pytest

from codesign import scenario_from_config
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


def test_a_plan_that_suits_stays():
    asked = ["accelerator=h200"]
    scenario = scenario_from_config(*asked)
    assert legal_start(scenario, asked) == (scenario, "")
