"""Whole jobs and unfitted tables against made-up measurements whose truth is known; what is set aside is named."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from codesign.config.groups import conf_dir
from codesign.core.errors import ConfigError, DataError
from codesign.evidence.calibration.constants import build, load
from codesign.evidence.calibration.gpus import Device, accelerators, stand_ins, wired_alike
from codesign.evidence.calibration.kernels import TABLES, TableGroup
from codesign.evidence.validation import (
    across_nodes,
    calibrate_frameworks,
    end_to_end,
    framework,
    measured_kernels,
    published_training,
    validate,
)
from codesign.evidence.validation.end_to_end import INFERENCE, TRAINING
from codesign.evidence.validation.measured_kernels import kernel_node, left_out
from codesign.evidence.validation.row_overrides import accelerator_option, left_out_cluster, measured_cluster
from codesign.evidence.validation.vectorise import PARTS, anonymous
from codesign.model.hardware import Link
from codesign.model.networks.fabrics import Group
from codesign.model.workloads import Precision

SLOWDOWN = 1.25
TABLE = "korthikanti2022_recompute.csv"


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> Path:
    """A made-up table of training steps: what the model says with every kernel 25 % slower; one GPU is unknown."""
    folder = tmp_path_factory.mktemp("steps")
    shapes = [(8, 1, 8, 4, "full recompute"), (8, 1, 8, 4, "selective recompute"), (8, 8, 64, 64, "full recompute")]
    rows = pd.DataFrame(shapes, columns=["tp", "pp", "num_gpus", "global_batch", "method"]).assign(
        gpu="A100-SXM-80GB", num_heads=64, hidden=6144, num_layers=48, seq_tokens=2048, vocab=51200, virtual_pp=1,
        micro_batch=1, iteration_time_s=1.0,
    )  # fmt: skip
    rows = pd.concat([rows, rows.iloc[:1].assign(gpu="Abacus-1")], ignore_index=True)
    prepared = published_training.prepare_rows(rows, published_training.korthikanti, measured_cluster)
    slow = prepared.predict(framework.adjustment({"kernel_slowdown": SLOWDOWN})).frame["predicted_s"]
    rows.loc[slow.index, "iteration_time_s"] = slow
    rows.to_csv(folder / TABLE, index=False)
    return folder


@pytest.mark.slow
def test_training_steps_are_scored_and_unknown_devices_named(steps):
    result = validate(steps, (TRAINING,))
    own = next(row for row in result if row["stratum"] == "training Korthikanti 2022" and row["group"] == "all")
    assert own["n"] == 3
    assert -0.21 < own["bias"] < -0.1  # kernels alone are 1 / 1.25 of what was measured, communication is all of it
    assert own["rank"] == pytest.approx(1.0)
    strata = {row["stratum"] for row in result}
    assert "training Korthikanti 2022, GPU left out" in strata
    assert "training Korthikanti 2022, framework of Megatron SC21" in strata
    assert any("Abacus-1" in row["quantity"] for row in result if row["suite"] == "note")


def test_a_suite_that_cannot_price_its_rows_keeps_no_other_from_being_scored(steps):
    """A design that a structure has no peak for ends its suite, in one line, and not the run."""

    def refused(folder: Path, messages: list[str]):
        raise ConfigError("accelerator has no peak for 'bf16'")

    def heard(folder: Path, messages: list[str]):
        messages.append("scored after it")
        return []

    result = validate(steps, (TRAINING._replace(run=refused), TRAINING._replace(run=heard)))
    said = [row["quantity"] for row in result]
    assert "training: not scored, accelerator has no peak for 'bf16'" in said
    assert "scored after it" in said


@pytest.mark.slow
def test_framework_constant_is_recovered_and_kept_with_its_origin(steps, tmp_path, capsys):
    (path,) = calibrate_frameworks(steps, tmp_path)
    assert TABLE in capsys.readouterr().err
    data = load(path)
    stem = TABLE.removesuffix(".csv")
    assert data[stem]["kernel_slowdown"] == pytest.approx(SLOWDOWN, rel=0.01)
    assert data["provenance"][stem]["source"] == "korthikanti2022"
    assert "3 rows" in data["provenance"][stem]["note"]
    assert calibrate_frameworks(tmp_path, tmp_path / "frameworks") == []


def test_a_fit_ignores_the_frameworks_of_others():
    table = pd.DataFrame({"scheme": ["PTD-P", "ZeRO-3"], "x": [1, 2]})
    assert framework.judged(table)["x"].tolist() == [1]
    assert set(framework.CONSTANTS) == set(framework.FITTED_ON) <= set(published_training.TABLES)
    whole = {name.partition("-")[0] for name in framework.stored()}
    assert whole <= set(framework.SOURCES) == set(framework.FITTED_ON.values())
    assert set(framework.SOURCES) < set(end_to_end.SHORT)


def test_sc21_step_time_by_hand():
    row = pd.Series({"seq_tokens": 2.0, "hidden": 3.0, "num_layers": 5.0, "global_batch": 7.0, "vocab": 11.0,
                     "achieved_tflops_per_gpu_hw": 1e-12, "num_gpus": 2.0})  # fmt: skip
    flops = 96 * 7 * 2 * 5 * 9 * (1 + 2 / 18 + 11 / (16 * 5 * 3))
    assert published_training.sc21_seconds(row) == pytest.approx(flops / 2)


@pytest.mark.slow
def test_static_batches_stay_below_the_floor_of_streaming_weights(tmp_path):
    batch, answers = 4, 512
    row = {"gpu": "H100-SXM", "precision": "fp16", "software": "mine", "model": "LLaMA-2 7B", "batch_size": batch,
           "tp": 1, "input_tokens": 128, "output_tokens": answers, "first_token_latency_ms": np.nan,
           "total_latency_s": np.nan}  # fmt: skip
    ceiling = batch * 3.35e12 / (2 * 6.74e9)  # tokens/s where each step reads all weights once
    unknown = row | {"model": "Oracle 1T", "first_token_latency_ms": 1.0}
    table = pd.DataFrame([row | {"output_tokens_per_s_per_gpu": ceiling}, unknown])
    table.to_csv(tmp_path / "static_batch.csv", index=False)
    result = validate(tmp_path, (INFERENCE,))
    own = next(r for r in result if r["stratum"] == "static-batch inference" and r["group"] == "all")
    assert -0.6 < own["bias"] < 0.0
    assert own["quantity"] == "output_tokens_per_s_per_gpu"
    assert any("Oracle 1T" in r["quantity"] for r in result if r["suite"] == "note")


def test_anonymous_clusters_keep_the_numbers_that_a_precision_asks_for():
    cluster = measured_cluster("H100-SXM")
    plain, precision = anonymous(cluster, Precision(compute="fp8"))
    own, theirs = cluster.accelerator, plain.accelerator
    assert precision.bytes_of("weights") == 2.0
    assert float(theirs.peak("compute")) == float(own.peak("fp8"))
    assert float(theirs.peak("attention")) == float(own.peak("bf16"))
    for kind, part in PARTS.items():
        name = {"compute": "fp8", "attention": "bf16", "vector": "vector"}[part]
        mine, result = own.kernel(kind, name), theirs.kernel(kind, part)
        assert jax.tree.leaves(result) == jax.tree.leaves(mine)
        assert type(result) is type(mine)
        assert getattr(getattr(result, "chip", None), "label", "") == ""  # nor what it was fitted on
    with pytest.raises(ConfigError, match="fp4"):
        anonymous(cluster, Precision(compute="fp4"))


def test_who_stands_in_for_whom():
    everyone = set(accelerators())
    assert stand_ins("h100_sxm", lambda name: name in everyone) == ["a100_80gb", "b200"]
    assert stand_ins("h100_sxm", lambda name: name in {"l40s", "gb300"}) == ["l40s", "gb300"]
    assert stand_ins("b200", lambda name: name in everyone) == ["gb200"]
    assert wired_alike("b200", lambda name: name in everyone) == ["b300"]
    assert wired_alike("a100_80gb", lambda name: name == "h100_sxm") == ["h100_sxm"]
    assert stand_ins("h20", lambda name: name == "h100_sxm") == ["h100_sxm"]
    assert wired_alike("mi300x", lambda name: False) == []


def test_between_two_generations_lies_the_logarithmic_mean():
    lent = left_out("h100_sxm", "trtllm", "gemm", "bf16")
    older, newer = (load(conf_dir() / "calibration" / f"{name}.yaml")["gemm"]["bf16"] for name in ("a100_80gb", "b200"))
    assert lent["t0_s"] == pytest.approx(np.sqrt(older["t0_s"] * newer["t0_s"]), rel=1e-3)
    assert lent["chip"]["processors"] == 132
    rate = [n["cache_ratio"] * n["chip"]["bandwidth_bytes_per_s"] / n["chip"]["peak_flops_per_s"]
            for n in (older, newer, lent)]  # fmt: skip
    assert rate[2] == pytest.approx(np.sqrt(rate[0] * rate[1]), rel=2e-3)  # caches go with the arithmetic
    kernels = left_out_cluster("H100-SXM").accelerator.kernels
    assert float(kernels["gemm"]["bf16"].t0_s) == pytest.approx(lent["t0_s"], rel=1e-5)


def test_names_of_devices():
    assert accelerator_option("A100-SXM") == "a100_80gb"
    assert accelerator_option("H20-3e") == "h20_3e"
    with pytest.raises(ConfigError, match="Abacus"):
        accelerator_option("Abacus-1")


def test_published_points_and_layers_are_scored_with_what_was_fitted_elsewhere(tmp_path):
    points = pd.DataFrame({"m": [8192, 16384], "n": [8192, 16384], "k": [8192, 16384]})
    points = points.assign(gpu="H100-SXM", dtype="bf16", software="", source="me", tflops=989.4)
    points = pd.concat([points, points.assign(gpu="Abacus-1")])
    points.to_csv(tmp_path / "gemm_published.csv", index=False)
    layer = {"gpu": "A100-SXM-80GB", "tp": 2, "num_tokens": 4096, "hidden": 8192, "ffn_hidden": 28672, "num_heads": 64,
             "num_kv_heads": 8}  # fmt: skip
    at_peak = {"mlp_down_proj": 2 * 4096 * 8192 * 14336 / 312e12, "add": 2 * 3 * 4096 * 8192 / 2.039e12, "spin": 1.0}
    rows = [layer | {"op": op, "latency_us": 1e6 * seconds} for op, seconds in at_peak.items()]
    pd.DataFrame(rows).to_csv(tmp_path / "vidur_layer_ops_test.csv", index=False)
    result = {(r["stratum"], r["group"]): r for r in validate(tmp_path, (measured_kernels.UNFITTED,))}
    peak = result["GEMM, published points", "H100-SXM bf16 me"]
    assert peak["n"] == 2
    assert 0.1 < peak["bias"] < 0.6  # nothing reaches the peak
    assert 0.0 < result["layer operators, GEMM", "A100-SXM-80GB mlp_down_proj"]["bias"] < 0.6
    assert 0.0 < result["layer operators, element-wise", "A100-SXM-80GB add"]["bias"] < 0.6
    notes = " ".join(r["quantity"] for r in validate(tmp_path, (measured_kernels.UNFITTED,)) if r["suite"] == "note")
    assert "Abacus-1" in notes
    assert "'spin'" in notes


def test_streams_reach_most_of_the_memory_bandwidth(tmp_path):
    sizes = [1e7, 5e8, 1e9]
    sweep = pd.DataFrame({"gpu": "H100-PCIe", "working_set_bytes": sizes, "read_gbytes_per_s": [7000, 2000, 2000]})
    sweep.to_csv(tmp_path / "hbm_l2_read_sweep_test.csv", index=False)
    result = validate(tmp_path, (measured_kernels.UNFITTED,))
    row = next(r for r in result if r["group"] == "all")
    assert row["quantity"] == "bandwidth"
    assert row["n"] == 2
    assert -0.3 < row["bias"] < 0.0  # data sheet: 2.0 TB/s
    assert any("1 rows of H100-PCIe set aside" in r["quantity"] for r in result if r["suite"] == "note")


def test_one_node_is_its_scale_up_curve_and_more_nodes_cost_more():
    nbytes = np.array([1e8, 1e9])
    alone = across_nodes.predicted("H100-SXM", "all_reduce", np.full(2, 8.0), np.ones(2), nbytes)
    curve = build(load(conf_dir() / "collective" / "nccl_h100_sxm.yaml")["all_reduce"])
    link = measured_cluster("H100-SXM").network["scale_up"].fabric.link(Group(8.0))
    assert isinstance(link, Link)
    np.testing.assert_allclose(alone, curve.cost(jnp.asarray(nbytes), Group(8.0), link).time_s, rtol=1e-6)
    wide = across_nodes.predicted("H100-SXM", "all_reduce", np.full(2, 8.0), np.full(2, 10.0), nbytes)
    assert (wide > alone).all()
    # the shards of one device cross its own 400 Gb/s card twice
    assert (wide > 2 * 0.9 * nbytes / 8 / 50e9).all()


@pytest.mark.slow
def test_tables_without_a_suite_are_named_with_the_reason(tmp_path, steps):
    (tmp_path / TABLE).write_text((steps / TABLE).read_text())
    (tmp_path / "shop.csv").write_text("gpu,item,value,unit\nH100-SXM,node,1,usd\n")
    (tmp_path / "riddle.csv").write_text("a\n1\n")
    notes = [row["quantity"] for row in validate(tmp_path, (TRAINING,)) if row["suite"] == "note"]
    assert "shop.csv: no suite uses this table, prices; they are sources of the configuration" in notes
    assert "riddle.csv: no suite uses this table, no kind has these columns" in notes
    (tmp_path / "layers.csv").write_text("gpu,op,tp,num_tokens,hidden,ffn_hidden,num_heads,latency_us\n")
    with pytest.raises(DataError, match=r"layers\.csv lacks column\(s\) num_kv_heads of operators of one layer"):
        validate(tmp_path, (measured_kernels.UNFITTED,))


def test_a_framework_of_an_unmeasured_gpu_is_that_of_its_relatives():
    """Not the reference framework's constants of its own, which are no nearer."""
    table = next(table for table in TABLES if table.name == "attention_decode")
    device = Device("H200", "h200", True, accelerators()["h200"].peaks, 132.0, 50e6)
    group = TableGroup(table, device, "vllm", "bf16", 989e12, 2.0, [], np.ones(0))
    messages: list[str] = []
    node = kernel_node(group, "h200", messages)
    assert node is not None
    assert node["chip"]["label"] == "attention_decode h100_sxm vllm bf16"  # learned factors of its generation
    assert "relatives under vllm bf16" in messages[0]
