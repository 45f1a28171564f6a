"""H100, H200, B200 and GB200 serving Llama 3.1 405B rank as products do, by about as much as was measured.

Sources: [mlenergy2025], `lm-arena-chat` on the model in FP8, the row of most tokens whose median time between tokens is
at most 48.1 ms: H100 x 8, 128 requests at once, 1,895.9 tokens/s; B200 x 4, 128 at once, 2,170.3 tokens/s; about 370
tokens an answer; lengths of prompts are not told, 200 is assumed. MLPerf inference 5.1 (github
mlcommons/inference_results_v5.1, closed division, Offline, one node): GB200 x 4 852 and B200 x 8 1,645 tokens/s, means
of 2 and 10 submissions. Of an H200 neither has a row: it stands between, as its memory's rate and room do.
"""

import pytest

from codesign.commands.comparing import compare

MEASURED = {"h100_sxm": 1895.9 / 8, "b200": 2170.3 / 4}
GB200_OVER_B200 = (852 / 4) / (1645 / 8)
ORDER = ["gb200", "b200", "h200", "h100_sxm"]


@pytest.fixture(scope="module")
def ranked():
    result = compare(
        "accelerator=h100_sxm,h200,b200,gb200",
        *("model=llama31_405b", "workload=continuous_fp8", "workload.input_tokens=200", "workload.output_tokens=370"),
        "framework=none",  # with vLLM's engine the limit cuts B200 at a smaller batch: GB200 is then 1.25 times as fast
        *("cluster.device_count=64", "objective.limits.tpot_s=48.1ms", "search=grid"),
        *("space.plan.tp=[4,8]", "space.plan.pp=[1]", "space.plan.ep=[1]", "space.plan.attention_dp=[1]"),
        *("space.plan.micro_batch=[32,64,96,128,192]", "space.plan.token_budget=[128,256]"),
    )
    return result.feasible.set_index("candidate")


@pytest.mark.slow
def test_they_rank_by_price_and_by_rate(ranked):
    assert list(ranked.index) == ORDER
    assert ranked["usd_per_million_tokens"].is_monotonic_increasing
    assert ranked["tokens_per_s_per_device"].is_monotonic_decreasing
    assert (ranked["device"] == ranked.index).all()  # as they are sold


@pytest.mark.slow
def test_rates_of_a_device_are_about_those_measured(ranked):
    rates = ranked["tokens_per_s_per_device"]
    for name, measured in MEASURED.items():
        assert rates[name] == pytest.approx(measured, rel=0.3), name
    assert rates["b200"] / rates["h100_sxm"] == pytest.approx(MEASURED["b200"] / MEASURED["h100_sxm"], rel=0.3)
    assert rates["gb200"] / rates["b200"] == pytest.approx(GB200_OVER_B200, rel=0.05)
