"""Number formats of weights by class: bytes with scales, arithmetic, checkpoints that state them, what is refused."""

import dataclasses
import json
import warnings

import pytest
from hub_kinds_by_hand import KINDS_BY_HAND

from codesign.config import scenario_from_config
from codesign.config.parts_built import format_lines
from codesign.core.errors import ConfigError
from codesign.model.workloads import ComputeOp, Precision, Transformer, WeightFormats, from_config_json
from codesign.model.workloads.hub_formats import formats_of
from codesign.model.workloads.number_formats import CLASSES, WEIGHT_FORMATS, class_of, everywhere
from codesign.search.results import numbers_of

GROUP = {"targets": ["Linear"], "input_activations": None}
EIGHT = {"num_bits": 8, "type": "float"}
NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}
KEPT = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]


def packed(weights: dict, activations: dict | None = None, **more) -> dict:
    """A configuration of compressed-tensors with one group."""
    group = GROUP | {"weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("fp8_block", 8 + 32 / 128**2),
        ("mxfp8", 8 + 8 / 32),
        ("nvfp4", 4 + 8 / 16),
        ("mxfp4", 4 + 8 / 32),
        ("int4", 4 + 20 / 128),
        ("int4_group32", 4 + 16 / 32),
        ("bf16", 16),
    ],
)
def test_bytes_of_a_weight_hold_its_share_of_the_scales(name, bits):
    assert 8 * WEIGHT_FORMATS[name].nbytes == bits


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"quant_method": "fp8"}, everywhere("fp8")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, everywhere("fp8_block")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, everywhere("int4")),
        ({"quant_method": "gptq", "bits": 8}, everywhere("int8_w8a16")),
        ({"quant_method": "mxfp4"}, WeightFormats(experts="mxfp4")),
        (
            packed({"num_bits": 4, "type": "int", "group_size": 32}, ignore=KEPT),
            WeightFormats(experts="int4_group32", linear_attention="int4_group32"),
        ),
        (packed({"num_bits": 8, "type": "int"}, {"num_bits": 8}), dataclasses.replace(everywhere("int8"), head="int8")),
        (
            packed(EIGHT, {"num_bits": 8}, ignore=["lm_head"], kv_cache_scheme=EIGHT),
            everywhere("fp8", "fp8"),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"]},
            dataclasses.replace(everywhere("nvfp4"), attention="bf16"),
        ),
        (
            {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
            everywhere("fp8", "fp8"),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4"},
                    "lm_head": {"quant_algo": "W4A16_NVFP4"},
                },
            },
            WeightFormats(attention="fp8", dense="nvfp4_w4a16", head="nvfp4_w4a16"),
        ),
    ],
)  # fmt: skip
def test_checkpoint_says_the_format_of_each_class(said, expected):
    assert formats_of(said, 4) == expected


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"quant_method": "fp6_magic"}, ["quant_method = 'fp6_magic'", "known: fp8"]),
        ({"quant_method": "modelopt", "quant_algo": "NVFP3"}, ["quant_algo = 'NVFP3'", "nvfp4"]),
        (packed({"num_bits": 3, "type": "int"}), ["int of 3 bits"]),
        (packed({"num_bits": "4"}), ["num_bits '4'"]),
        ({"quant_method": "awq", "bits": 2}, ["awq of 2 bits"]),
        ({"quant_method": "compressed-tensors"}, ["config_groups is missing"]),
        (packed(NVFP4, ignore=["re:("]), ["'re:('"]),
        ([], ["no object"]),
    ],
)
def test_format_that_is_not_known_is_refused_by_name(said, words):
    with pytest.raises(ConfigError) as refused:
        formats_of(said if said else ["x"], 4)
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert "\n" not in str(refused.value)


def test_file_beside_the_configuration_is_read(tmp_path):
    """Infinity in the one, formats in the other; classes that the model lacks are left out."""
    config = KINDS_BY_HAND["qwen3_0_6b"] | {"time_step_limit": [0.0, float("inf")]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert from_config_json(tmp_path).formats is None
    said = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(said), encoding="utf-8")
    assert from_config_json(tmp_path).formats == WeightFormats(attention="fp8", dense="fp8", kv_cache="fp8")


def test_name_that_promises_a_format_which_no_file_states_is_told(tmp_path):
    folder = tmp_path / "Some-1B-NVFP4"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(KINDS_BY_HAND["qwen3_0_6b"]), encoding="utf-8")
    with pytest.warns(UserWarning, match="its name says NVFP4"):
        from_config_json(folder)


def served(*overrides: str):
    return scenario_from_config("workload=static_batch", *overrides)


def products(scenario) -> dict[str, str]:
    """Name of each matrix product -> format of its arithmetic."""
    ops = scenario.workload.lower(scenario.layout)
    return {op.name: op.number_format for op in ops if isinstance(op, ComputeOp) and op.kernel.endswith("gemm")}


@pytest.mark.slow
def test_gpt_oss_fits_one_h100_in_the_format_that_it_was_published_in():
    scenario = served("model=gpt_oss_120b", "precision=checkpoint", "cluster.device_count=1", "plan.tp=1")
    work = scenario.workload
    stored = float(work.model.stored_bytes(work.precision))
    assert stored == pytest.approx(65.2e9, rel=0.005)  # index of the weights: 65.2 GB
    weights, _ = work.footprint(scenario.layout)["weights"]
    assert stored < float(weights) < 75e9  # experts are padded when they are loaded
    assert products(scenario)["moe_up"] == "mxfp4_w4a16"
    assert products(scenario)["attention_qkv"] == "bf16"


@pytest.mark.parametrize(
    ("model", "gigabytes"), [("qwen3_235b_a22b", 134), ("deepseek_r1", 379)], ids=["qwen3", "deepseek"]
)
def test_operations_hold_the_bytes_that_the_model_stores(model, gigabytes):
    """Experts, attention and the rest of the operations, with scales, and embedding and head in bf16."""
    scenario = served(f"model={model}", "precision=nvfp4", "cluster.device_count=1", "plan.tp=1")
    work = scenario.workload
    weights, _ = work.footprint(scenario.layout)["weights"]
    stored = float(work.model.stored_bytes(work.precision))
    assert float(weights) == pytest.approx(stored, rel=1e-3)  # norms apart
    assert stored == pytest.approx(gigabytes * 1e9, rel=0.01)


@pytest.mark.slow
def test_products_run_in_the_format_of_their_class_where_the_device_has_it():
    new, old = (served(f"accelerator={name}", "model=mixtral_8x7b", "precision=nvfp4") for name in ("b200", "h100_sxm"))
    assert products(new)["moe_up"] == products(new)["attention_qkv"] == "fp4"
    assert products(new)["moe_router"] == products(new)["head"] == "bf16"
    assert products(old)["moe_up"] == products(old)["attention_qkv"] == "mxfp4_w4a16"  # weights are expanded
    assert old.workload.precision.lacking == ("fp4",)
    assert any("h100_sxm has no fp4" in line for line in format_lines(old))


def test_formats_all_alike_price_as_the_precision_without_classes():
    """Classes in bf16 change nothing; in fp8 they differ from weights in fp8 by embedding, head and router alone."""
    plain, by_class = Precision(), Precision(by_class=WeightFormats())
    model = scenario_from_config("model=llama31_8b", "workload=static_batch").workload.model
    assert float(model.stored_bytes(by_class)) == float(model.stored_bytes(plain))
    for name in ("attention_qkv", "mlp_up", "moe_up", "head", "moe_router"):
        assert by_class.weight_bytes(name) == plain.weight_bytes(name)
        assert by_class.product(name) == plain.product(name)
    assert {class_of(name) for name in ("attention_out", "index_keys", "linear_in", "moe_down", "moe_shared_up")} < {
        *CLASSES
    }


@pytest.mark.slow
def test_what_serves_takes_the_formats_of_its_checkpoint(tmp_path):
    """Those of the catalogue and of a file alike; an own choice and an experiment's go before both."""
    assert served("model=gpt_oss_120b").workload.precision.by_class.experts == "mxfp4"
    assert served("model=gpt_oss_120b", "precision=bf16").workload.precision.by_class is None
    kept = scenario_from_config("experiment=serve_llama31_405b_static", "model=gpt_oss_120b")
    assert kept.workload.precision.by_class is None
    said = {"quantization_config": {"quant_method": "fp8"}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(KINDS_BY_HAND["qwen3_0_6b"] | said), encoding="utf-8")
    path = f"model.path={file}"
    assert served("model=hf", path).workload.precision.by_class.attention == "fp8"
    assert served("model=hf", path, "precision=bf16").workload.precision.by_class is None
    assert served("model=hf", path, "precision=int4").workload.precision.by_class.attention == "int4"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scenario_from_config("model=hf", path).workload.precision.by_class is None  # what is trained


def test_rows_of_formats_know_what_the_model_has():
    model = Transformer.example()
    counts = model.weights_by_class()
    assert float(sum(counts.values())) == float(model.parameters())
    assert set(counts) == {"embedding", "head", "attention", "dense"}
    assert everywhere("int8").told(["dense", "head"]) == "int8: dense; bf16: head"


def kernels_of(*overrides: str) -> set[tuple[str, str]]:
    """Operation and number format of the products with experts' weights."""
    scenario = scenario_from_config("workload=serving", "framework=none", *overrides)
    ops = scenario.workload.lower(scenario.layout)
    return {(op.name, op.number_format) for op in ops if isinstance(op, ComputeOp) and op.kernel == "moe_gemm"}


@pytest.mark.parametrize(
    ("model", "accelerator", "expected"),
    [
        ("gpt_oss_120b", "h100_sxm", "mxfp4_w4a16"),
        ("gpt_oss_120b", "b200", "mxfp4_w4a8"),  # engines quantise activations to mxfp8 there
        ("gpt_oss_120b", "mi300x", "mxfp4_w4a16"),
        ("deepseek_v3", "h200", "fp8_block"),
        ("deepseek_v3", "a100_80gb", "bf16"),  # which has no 8 bits: weights are expanded
        ("kimi_k25", "h200", "mxfp4_w4a16"),  # stands in for other groups of 4 bits
    ],
)
def test_products_with_published_weights_run_on_the_kernels_that_were_measured_with_them(model, accelerator, expected):
    chosen = (f"model={model}", f"accelerator={accelerator}", "precision=checkpoint", "plan.tp=8")
    assert {name for _, name in kernels_of(*chosen)} == {expected}


def test_explicit_formats_are_as_they_are_said():
    said = ("model=gpt_oss_120b", "accelerator=b200", "precision=mxfp4")
    assert {name for _, name in kernels_of(*said)} == {"mxfp4_w4a16"}


def test_kernels_named_by_weights_are_bound_by_the_peak_of_their_arithmetic():
    accelerator = scenario_from_config("accelerator=b200").cluster.accelerator
    peaks = accelerator.peak_flops_per_s
    for name, arithmetic in (("mxfp4_w4a16", "bf16"), ("mxfp4_w4a8", "fp8"), ("fp8_block", "fp8"), ("fp4", "fp4")):
        assert accelerator.arithmetic(name) == arithmetic
        assert float(accelerator.peak(name)) == float(peaks[arithmetic])
    with pytest.raises(ConfigError, match="no peak for 'int3'"):
        accelerator.peak("int3")


@pytest.mark.slow
def test_engine_runs_the_grouped_products_that_it_shares_with_another_where_both_do():
    def experts(accelerator: str, framework: str):
        chosen = (f"accelerator={accelerator}", f"framework={framework}", "workload=serving", "model=gpt_oss_120b")
        return scenario_from_config(*chosen).cluster.accelerator.kernels["moe_gemm"]

    for name in ("fp4", "fp8_block", "mxfp4_w4a8"):
        own, lent = experts("b200", "trtllm")[name], experts("b200", "vllm")[name]
        assert own.t0_s == lent.t0_s
        assert own.memory_ratio == lent.memory_ratio
    assert experts("b200", "trtllm")["bf16"].t0_s != experts("b200", "vllm")["bf16"].t0_s
    assert experts("h100_sxm", "trtllm")["fp8_block"].t0_s != experts("h100_sxm", "vllm")["fp8_block"].t0_s


@pytest.mark.slow
def test_gpt_oss_serves_within_a_third_of_what_was_measured_on_blackwell():
    """Public runs of InferenceX, one B200 under vLLM 0.15: 4, 32 and 64 clients, 1,024 tokens in and out (x 0.9)."""
    for clients, measured_s in ((4, 3.487e-3), (32, 7.933e-3), (64, 1.0498e-2)):
        scenario = scenario_from_config(
            "accelerator=b200", "workload=continuous", "model=gpt_oss_120b", "framework=vllm", "precision=checkpoint",
            "workload.precision.kv_cache=fp8", "plan.tp=1", f"plan.micro_batch={clients}", "cluster.device_count=1",
            "workload.input_tokens=922", "workload.output_tokens=922",
        )  # fmt: skip
        result = numbers_of(scenario)["tpot_s"]
        assert result == pytest.approx(measured_s, rel=0.35)  # twice as much before its own kernels were taken
