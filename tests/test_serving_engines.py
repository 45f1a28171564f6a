"""Serving engines as frameworks, constants from little, library constants of expert exchange, the page of errors."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf, open_dict

from codesign.config import groups
from codesign.config.composition import compose
from codesign.config.construct import resolve
from codesign.config.engines import fitted_exchanges, with_engine
from codesign.core.errors import ConfigError
from codesign.core.json_yaml import read_yaml
from codesign.evidence.calibration import serving_engines
from codesign.evidence.validation import served_rows, served_suites, serving_fit
from codesign.evidence.validation.near import slowdown_of
from codesign.evidence.validation.page import tables_of
from codesign.evidence.validation.row_overrides import measured_cluster, model_of
from codesign.evidence.validation.served_rows import Job
from codesign.evidence.validation.served_suites import engine_job, pools, repeats
from codesign.model.workloads import ContinuousServing, MixtureOfExperts
from codesign.model.workloads.served import AbstractServing

SERVED = "experiment=serve_llama31_405b"


def plain(*overrides: str):
    return OmegaConf.to_container(compose([SERVED, *overrides]), resolve=False)


def part(config, path: str):
    for key in path.split("."):
        config = config[key]
    return config


KERNELS, WIRES = "cluster.accelerator.kernels", "cluster.network.scale_up.collectives"


def test_an_engine_brings_its_kernels_its_all_reduce_its_exchange_and_nothing_else():
    own, served = plain(), plain("framework=vllm")
    assert part(served, f"{KERNELS}.gemm.bf16.chip.label") == "gemm h100_sxm vllm bf16"
    assert part(served, f"{WIRES}.all_reduce") != part(own, f"{WIRES}.all_reduce")
    assert part(served, f"{WIRES}.all_gather") == part(own, f"{WIRES}.all_gather")
    assert "engine" not in served["workload"]
    assert part(served, f"{WIRES}.provenance.all_reduce.at").startswith("vLLM_custom_graph")


@pytest.mark.slow
def test_an_engine_sends_tokens_to_experts_by_a_library():
    """One start for all numbers of ranks and a share of the link: means of dispatch and combine; others stay."""
    served = part(plain("framework=sglang", "model=deepseek_v3", "accelerator=b200"), f"{WIRES}.all_to_all")
    phases = (("dispatch", "fp8"), ("combine", "bfloat16"))
    low = [fitted_exchanges()["deepep_low_latency", phase, form, False] for phase, form in phases]
    copy = 7168 * (1 + 4 / 128), 7168 * 2
    start = sum(one.start_8_s + 256 * one.expert_s for one in low) / 2  # at the link that starts are stated at
    a_byte = sum(1 / one.rate_bytes_per_s + one.token_s / 256 / n for one, n in zip(low, copy, strict=True)) / 2
    for members in (2, 8, 64):
        assert served[f"base_{members}_s"] == pytest.approx(start)
        assert served[f"ratio_{members}"] == pytest.approx(1 / (a_byte * 900e9))
    older = part(plain("framework=sglang", "model=deepseek_v3", "accelerator=h100_sxm"), f"{WIRES}.all_to_all")
    assert older["base_8_s"] < served["base_8_s"]
    assert older["ratio_8"] * 450e9 < served["ratio_8"] * 900e9
    dense = part(plain("framework=sglang"), f"{WIRES}.all_to_all")  # which sends no tokens
    assert dense["base_8_s"] == older["base_8_s"]
    origin = part(plain("framework=sglang"), f"{WIRES}.provenance.all_to_all")
    assert origin["kind"] == "derived"
    assert "dispatch and combine" in origin["at"]
    ring = plain("framework=sglang", "collective=ring")
    assert part(ring, f"{WIRES}.all_to_all") == part(plain("collective=ring"), f"{WIRES}.all_to_all")
    mistaken = OmegaConf.create(plain())
    mistaken.workload["engine"] = {"exchange": "deepep_low_latencies"}
    with pytest.raises(ConfigError, match=r"no exchange 'deepep_low_latencies'.*deepep_low_latency"):
        with_engine(mistaken)


def test_what_a_user_sets_stays_and_other_wires_are_left_alone():
    ring = plain("framework=vllm", "collective=ring")
    assert part(ring, f"{WIRES}.all_reduce._target_") == "codesign.model.networks.collectives.RingAllReduce"
    kept = plain("framework=vllm", f"{KERNELS}.gemm.bf16.t0_s=1e-6", "workload.step_overhead_s=0")
    assert part(kept, f"{KERNELS}.gemm.bf16.t0_s") == 1e-6
    assert part(kept, "workload.step_overhead_s") == 0


@pytest.mark.parametrize(("accelerator", "found"), [("h100_sxm", "fp8_block"), ("b200", "fp8")])
def test_grouped_products_that_nobody_tuned_are_not_what_an_engine_runs(accelerator, found):
    """Fewer bits and fewer FLOP/s than 16 bits: on H100 the engine's kernel of scaled blocks stands in."""
    served = plain("framework=vllm", f"accelerator={accelerator}")
    formats = part(served, f"{KERNELS}.moe_gemm")
    assert formats["fp8"]["chip"]["label"].endswith(f"vllm {found}")
    peaks = part(served, "cluster.accelerator.peak_flops_per_s")
    narrow, wide = (formats[name]["compute_ratio"] * float(peaks[name]) for name in ("fp8", "bf16"))
    assert narrow >= wide


@pytest.mark.slow
def test_a_relative_of_the_generation_stands_in_and_others_do_not():
    assert "h100_sxm vllm" in part(plain("framework=vllm", "accelerator=h200"), f"{KERNELS}.gemm.bf16.chip.label")
    own, served = (plain(*more, "accelerator=mi300x") for more in ((), ("framework=vllm",)))
    assert part(own, KERNELS) == part(served, KERNELS)


def test_fused_quantisation_bounds_the_floor_of_small_formats():
    own, served = plain(), plain("framework=trtllm")
    floor = part(served, f"{KERNELS}.gemm.bf16.t0_s")
    assert part(own, f"{KERNELS}.gemm.fp8.t0_s") > 1.5 * floor
    assert part(served, f"{KERNELS}.gemm.fp8.t0_s") == pytest.approx(1.5 * floor)
    assert part(served, f"{KERNELS}.gemm.fp8.quantise_passes") == 0


@pytest.mark.slow
@pytest.mark.parametrize("workload", groups.available("workload"))
def test_every_workload_that_serves_runs_on_an_engine(workload: str) -> None:
    """Also two pools at a rate, whose classes are not called so."""
    asked = ["framework=vllm", f"workload={workload}"]
    serves = issubclass(resolve(compose(asked[1:]).workload._target_, "_target_"), AbstractServing)
    if serves:
        assert compose(asked).workload.request_overhead_s > 0
    else:
        with pytest.raises(ConfigError, match="a serving engine runs no"):
            compose(asked)


@pytest.mark.parametrize("workload", ["continuous", "at_rate", "disaggregated"])
def test_a_training_framework_is_refused_where_requests_are_served(workload: str):
    with pytest.raises(ConfigError, match=r"a training framework runs no \w+; allowed: vllm, .*sglang, trtllm"):
        compose(["framework=nemo", f"workload={workload}"])


def test_an_engine_is_refused_where_nothing_is_served():
    with pytest.raises(ConfigError, match="a serving engine runs no Training"):
        compose(["framework=vllm"])
    config = OmegaConf.create(
        {"workload": {"_target_": "codesign.model.workloads.StaticBatch", "engine": {"kernel": "vllm"}}}
    )
    with pytest.raises(ConfigError, match="no key 'kernel'"):
        with_engine(config)


@pytest.mark.parametrize("shared", ["vllm", {"blackwell": "vllm"}, ["fp4"]])
def test_kernels_that_are_shared_by_no_generation_and_format_are_refused(shared):
    config = compose(["workload=serving"])
    with open_dict(config):
        config.workload.engine = {"shared_kernels": shared}
    with pytest.raises(ConfigError, match=r"shared_kernels = .* is no generation: \{format: engine\}"):
        with_engine(config)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_shipped_constants_of_an_engine_are_those_that_were_fitted(engine):
    fitted = read_yaml((groups.conf_dir() / "calibration" / "frameworks" / "serving.yaml").read_text())
    shipped = read_yaml((groups.conf_dir() / "framework" / f"{engine}.yaml").read_text())
    for name in ("kernel_slowdown", "step_overhead_s", "request_overhead_s", "prompt_token_s", "expert_launch_s"):
        assert shipped[name] == fitted[engine][name]
        assert shipped["provenance"][name]["note"] == fitted["provenance"][engine]["note"]
    for name, value in shipped["engine"]["clients"].items():
        assert value == fitted[engine][name]


@pytest.mark.parametrize(
    ("tp", "groups_of", "moe_tp", "moe_ep", "found"),
    [(8, 1, 8, 1, (8, 1, 1)), (64, 1, 8, 8, (8, 1, 8)), (1, 64, 8, 8, (8, 8, 8)), (1, 8, 1, 8, (8, 8, 8)),
     (4, 4, 1, 16, (4, 1, 4)), (8, 1, 2, 4, (8, 1, 4)), (2, 0, 0, 0, (2, 1, 1))],
)  # fmt: skip
def test_ranks_of_exports_that_state_a_degree_twice(tp, groups_of, moe_tp, moe_ep, found):
    row = SimpleNamespace(tp=float(tp), attention_dp=float(groups_of), moe_tp=float(moe_tp), moe_ep=float(moe_ep))
    assert served_rows.ranks(row) == found


def jobs_of_a_table() -> list[Job]:
    """Prompts of two lengths, at concurrencies of all bands, half of them with lengths that vary."""
    cells = [(1024.0, 256.0), (4096.0, 1024.0)]
    return [
        Job(measured_cluster("H100-SXM"), model_of("Llama-3.1-8B"), "bf16", 1.0, 1.0, 1.0, False, sequences,
            *lengths, "vllm", varied=varied)
        for sequences in (2.0, 8.0, 32.0) for lengths in cells for varied in (False, True)
    ]  # fmt: skip


@pytest.mark.slow
def test_constants_of_an_engine_are_recovered_as_far_as_they_are_not_held():
    engine = serving_engines.FittedEngine(1.08, 4e-4, 0.03, 8e-6, 0.0, 2e-3, 0.2, 5.0)
    jobs = jobs_of_a_table()
    none, blank = np.zeros(len(jobs)), np.ones(len(jobs))
    said = serving_fit.seen(jobs, none, blank, blank).under(engine)
    rows = serving_fit.seen(jobs, none, *said)
    result = serving_engines.fit_engine(rows, serving_fit.identified_by(jobs))
    assert result.expert_launch_s == 0.0  # no row tells it
    assert result.prompt_token_s == pytest.approx(8e-6, rel=0.2)
    assert result.kernel_slowdown == pytest.approx(1.08, abs=0.03)
    assert result.cohort_prompts == pytest.approx(5.0, rel=0.1)
    assert result.request_overhead_s == pytest.approx(0.03, rel=0.1)
    assert result.burst_ratio == pytest.approx(0.2, rel=0.1)
    assert result.client_overhead_s == pytest.approx(2e-3, rel=0.1)
    again = rows.under(result)
    assert again.first_s == pytest.approx(said.first_s, rel=0.02)
    groups_of = np.arange(len(jobs)) % 3
    apart = serving_engines.left_out(rows, result, groups_of)
    assert apart.first_s == pytest.approx(said.first_s, rel=0.05)  # the others say the same


@pytest.mark.slow
def test_rows_left_out_are_predicted_as_by_a_fit_without_them():
    """To first order: a third of the rows is 6 % slower than the constants say, and the others do not know."""
    jobs = jobs_of_a_table()
    none, blank = np.zeros(len(jobs)), np.ones(len(jobs))
    engine = serving_engines.FittedEngine(1.1, 1e-4, 0.03, 5e-6, 0.0, 1e-3, 0.2, 5.0)
    said = serving_fit.seen(jobs, none, blank, blank).under(engine)
    odd = np.arange(len(jobs)) % 3 == 0
    rows = serving_fit.seen(jobs, none, *(np.where(odd, 1.06 * times, times) for times in said))
    fitted = serving_engines.fit_engine(rows, serving_fit.identified_by(jobs))
    apart = serving_engines.left_out(rows, fitted, np.where(odd, "odd", "even"))
    others = [job for job, is_odd in zip(jobs, odd, strict=True) if not is_odd]
    without = serving_engines.fit_engine(
        serving_fit.seen(others, none[~odd], said.first_s[~odd], said.between_s[~odd]),
        serving_fit.identified_by(others),
    )
    assert apart.between_s[odd] == pytest.approx(rows.under(without).between_s[odd], rel=0.02)
    assert apart.first_s[odd] == pytest.approx(rows.under(without).first_s[odd], rel=0.04)


def test_the_slowdown_of_few_steps_is_held_near_one():
    assert slowdown_of(np.full(3, 1.3)) == pytest.approx(1.3**0.75)
    assert slowdown_of(np.full(300, 1.3)) == pytest.approx(1.3, rel=1e-2)


def test_new_prompts_count_in_the_first_stage_of_a_run_alone():
    table = pd.DataFrame({"run": ["a", "a", "b"], "request_rate_per_s": [2.0, 6.0, 10.0], "duration_s": 600.0,
                          "distinct_prompts": [45, 45, 44]})  # fmt: skip
    assert served_suites.with_cached_share(table)["cached_share"].tolist() == pytest.approx(
        [1 - 45 / 1200, 1.0, 1 - 44 / 6000]
    )


def test_the_tables_name_what_is_missed_and_what_was_set_aside():
    numbers = {"n": 9, "median": 0.2, "mean": 0.2, "p90": 0.4, "bias": -0.1, "rank": 0.9, "coverage": 0.5,
               "left_out": 0.9, "width": 1.2}  # fmt: skip
    row = {"suite": "closed loop", "stratum": "every concurrency", "quantity": "tpot", **numbers}
    note = {"suite": "note", "stratum": "", "quantity": "x.csv: not used", "group": "", **dict.fromkeys(numbers)}
    files = tables_of([row | {"group": "all"}, row | {"group": "H100 model"}, note])
    assert list(files) == ["README.md", "closed_loop.md", "strata.csv"]
    assert "| closed loop | every concurrency | tpot | 20.0 | 11.0 |" in files["README.md"]
    assert "- [Closed loop](closed_loop.md)\n" in files["README.md"]
    assert "- x.csv: not used" in files["README.md"]
    assert (
        "| every concurrency | tpot | eight constants an engine, on these rows | 9 | 20.0 |" in files["closed_loop.md"]
    )
    assert "| H100 model | every concurrency | tpot | 9 |" in files["closed_loop.md"]
    fitted = '"eight constants an engine, on these rows"'
    assert f"closed loop,every concurrency,tpot,{fitted},9,0.2,0.2,0.4,-0.1,0.9,0.5,0.9,1.2\n" in files["strata.csv"]


@pytest.mark.parametrize(("held", "rows", "told"), [(0.9, 20, "1 of 1"), (0.97, 20, "0 of 1"), (0.7, 19, "0 of 0")])
def test_the_overview_judges_intervals_by_rows_left_out(held, rows, told):
    """Rows that were fitted on lie inside too often: what counts is what was held of others."""
    named = {"suite": "power", "stratum": "steady decoding", "quantity": "x", "group": "all", "n": rows}
    errors = {"median": 0.1, "mean": 0.1, "p90": 0.2, "bias": 0.0, "rank": None}
    row = named | errors | {"coverage": 0.999, "left_out": held, "width": 1.3}
    text = tables_of([row])["README.md"]
    assert f"in {told} strata of at least" in text
    assert (f"| power | steady decoding | x | {rows} | 99.9 | {100 * held:.1f} | x/1.30 |" in text) == (
        told == "0 of 1"
    )


@pytest.mark.parametrize(("moe_ep", "spread"), [(8.0, True), (1.0, False)])
def test_groups_that_spread_experts_send_them_their_tokens(moe_ep, spread):
    """Eight groups of one rank each: an all-to-all among replicas, or one engine whose ranks gather all tokens."""
    of = {"tp_size": 1.0, "attention_dp_size": 8.0, "moe_tp_size": 8.0 / moe_ep, "moe_ep_size": moe_ep, "pp_size": 1.0}
    sizes = {f"{pool}_{name}": value for pool in ("prefill", "decode") for name, value in of.items()}
    row = SimpleNamespace(
        **sizes, gpu="B200", model="deepseek-ai/DeepSeek-V3", precision="fp8", backend="sglang", origin="",
        concurrency=64.0, prefill_num_workers=1.0, decode_num_workers=1.0, input_tokens=1024.0, output_tokens=1024.0,
    )  # fmt: skip
    decode, run = engine_job(row, "decode", 64.0), pools(row)
    assert "workload=disaggregated_clients" in run.chosen
    assert (run.numbers["plan.prefill_devices"], run.numbers["cluster.device_count"]) == (8.0, 8.0)
    assert decode.spread == spread
    plan = {name: run.numbers[f"plan.{name}"] for name in ("tp", "ep", "etp", "attention_dp", "micro_batch")}
    assert plan["ep"] * plan["tp"] == 8.0
    assert (plan["ep"], plan["etp"], plan["attention_dp"]) == ((8.0, 0.0, 1.0) if spread else (1.0, 0.0, 8.0))
    assert plan["ep"] * plan["micro_batch"] == 64.0  # all sequences, whoever holds them


@pytest.mark.parametrize(
    ("tp", "attention_dp", "moe_ep", "found"),
    [(8, 1, 8, (8, 8, 1, 1)), (8, 1, 4, (8, 4, 2, 1)), (8, 1, 1, (8, 1, 0, 1)), (1, 8, 8, (8, 8, 1, 8)),
     (4, 2, 8, (8, 8, 1, 2))],
)  # fmt: skip
def test_experts_lie_whole_on_the_ranks_over_which_they_are_spread(tp, attention_dp, moe_ep, found):
    row = SimpleNamespace(
        tp=float(tp), pp=1.0, attention_dp=float(attention_dp), moe_ep=float(moe_ep), moe_tp=8.0 / moe_ep, gpu="B200",
        model="deepseek-ai/DeepSeek-V3", precision="fp8", backend="sglang", concurrency=64.0, batch_size=64.0,
        input_tokens=1024.0, output_tokens=1024.0,
    )  # fmt: skip
    numbers = served_rows.run_of(served_rows.job(row)).numbers
    assert tuple(numbers[f"plan.{name}"] for name in ("tp", "ep", "etp", "attention_dp")) == found


def test_published_weights_of_8_bits_have_the_scales_that_the_catalogue_says():
    told = {name: served_rows.in_blocks(name) for name in ("Qwen/Qwen3-32B", "nvidia/Qwen3-32B-FP8", "zhipuai/GLM-5")}
    assert told == {"Qwen/Qwen3-32B": True, "nvidia/Qwen3-32B-FP8": False, "zhipuai/GLM-5": True}


def test_launches_of_a_prompt_to_experts_are_issued_beside_the_work():
    """The longer of both counts; without experts only what the host adds to any request and to its tokens."""
    dense = replace(ContinuousServing.example().model, layers=10.0)
    routed = replace(dense, feed_forward=MixtureOfExperts(experts=8.0, top_k=2.0, expert_width=512.0))
    early = replace(routed, feed_forward=replace(routed.feed_forward, dense_layers=5.0, dense_width=512.0))
    host = {"request_overhead_s": 0.03, "prompt_token_s": 0.01 / 512, "expert_overhead_s": 0.07}
    for model, told in (
        (routed, {0.05: 0.19, 0.5: 0.54}), (early, {0.05: 0.15, 0.5: 0.54}), (dense, {0.05: 0.09, 0.5: 0.54})
    ):  # fmt: skip
        work = ContinuousServing(model, 512.0, 64.0, **host, expert_launch_s=0.001)
        for worked, seconds in told.items():
            assert float(work.first_s(jnp.asarray(worked))) == pytest.approx(seconds)


def test_runs_of_one_condition_are_told_apart():
    """Two conditions are repeated, one differs in what was asked for, one is the same row again."""
    rows = [("a", 4.0, 100.0, 10.0), ("a", 4.0, 150.0, 10.0), ("a", 8.0, 90.0, 9.0), ("b", 4.0, 50.0, 8.0)]
    rows += [("b", 4.0, 200.0, 8.0), ("c", 4.0, 70.0, 7.0), ("c", 4.0, 70.0, 7.0)]
    table = pd.DataFrame(rows, columns=["gpu", "concurrency", "ttft_ms", "tpot_ms"])
    (line,) = repeats(table.assign(origin=[str(row) for row in range(len(rows))]))
    assert "4 rows of ttft_ms" in line
    assert "2 conditions" in line
    assert "2.75 times the fastest in the median, 4.0 at most" in line
