"""A run folder with made-up, consistent numbers: what a search leaves, without a search."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

CONFIG = {
    "name": "train_example",
    "cluster": {"device_count": 1024, "accelerator": {"name": "h100_sxm"}},
    "workload": {"model": {"name": "gpt3_175b"}},
    "plan": {"micro_batch": 1},
    "space": {
        "hardware": {
            "scale_up_bandwidth": {"path": "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"},
            "hbm_to_ddr": {"numerator": "cluster.accelerator.hbm.capacity_bytes", "denominator": "x"},
        }
    },
    "objective": {
        "minimise": "usd_per_million_tokens",
        "maximise": "",
        "limits": {"capex_usd": 45e6, "provisioned_power_w": 1.3e6},
    },
}
SHARES = {
    "forward": 0.24,
    "backward": 0.47,
    "tp": 0.13,
    "dp": 0.02,
    "bubble": 0.08,
    "optimizer": 0.01,
    "overhead": 0.05,
}
SERVING_SHARES = {"prefill": 0.15, "decode": 0.62, "tp": 0.18, "head": 0.03, "overhead": 0.02, "dp": 0.0}


def example_designs(serving: bool, count: int = 60) -> pd.DataFrame:
    """Made-up but consistent designs: parts sum to the time, usage is memory over capacity, money follows power."""
    random = np.random.default_rng(7)
    order = np.sort(random.uniform(0, 1, count))
    frame = pd.DataFrame({"design": np.arange(count), "rank": np.arange(1, count + 1)})
    frame["method"] = np.where(np.arange(count) % 3, "grid", "gradient")
    frame["seed"], frame["feasible"] = 0, np.arange(count) < 0.7 * count
    frame["var.tp"], frame["var.pp"] = random.choice([4.0, 8.0], count), random.choice([1.0, 8.0, 16.0], count)
    frame["var.dp"] = 1024 / frame["var.tp"] / frame["var.pp"]
    frame["var.micro_batch"] = 32.0 if serving else random.choice([1.0, 2.0], count)
    if not serving:
        frame["var.virtual_stages"] = np.where(frame["var.pp"] > 1, 3.0, 1.0)
        frame["var.recompute"], frame["var.zero"] = random.choice([0.0, 1.0, 2.0], count), 1.0
        frame["var.sequence_parallel"], frame["var.offload_optimizer"] = 1.0, random.choice([0.0, 0.5], count)
    frame["var.scale_up_bandwidth"] = np.geomspace(900e9, 225e9, count)
    frame["var.hbm_to_ddr"] = random.uniform(0.16, 0.64, count)
    frame["time_s"] = (38.0 if serving else 4.1) * (1 + 1.6 * random.permutation(order))
    tokens = 64 * 32 * 1024.0 if serving else 1024 * 2048.0
    frame["tokens_per_s"] = tokens / frame["time_s"]
    frame["mfu"] = (0.08 if serving else 0.52) * frame["time_s"].min() / frame["time_s"]
    frame["capex_usd"] = 30e6 + 12e6 * random.uniform(0, 1, count)
    frame["provisioned_power_w"] = 1.05e6 + 0.2e6 * random.uniform(0, 1, count)
    frame["power_w"] = 0.6 * frame["provisioned_power_w"]
    frame["energy_j"] = frame["power_w"] * frame["time_s"]
    frame["joules_per_token"] = frame["energy_j"] / tokens
    usd = frame["capex_usd"] * frame["time_s"] / 1.26e8 + frame["energy_j"] * 0.08 / 3.6e6
    frame["usd_per_million_tokens"] = np.sort(1e6 * usd / tokens)
    frame["objective"] = frame["usd_per_million_tokens"]
    if serving:
        frame["ttft_s"], frame["tpot_s"] = 0.08 * frame["time_s"], 0.92 * frame["time_s"] / 1023
        frame["decode_tokens_per_s"] = 32 * frame["var.dp"] / frame["tpot_s"]
    for name, share in (SERVING_SHARES if serving else SHARES).items():
        frame[f"breakdown_s.{name}"] = share * frame["time_s"]
    classes = {"weights": 22e9, "kv_cache": 31e9, "working": 4e9}
    if not serving:
        classes = {"weights": 11e9, "gradients": 22e9, "optimizer": 4e9, "activations": 27e9, "working": 2e9}
    for name, nbytes in classes.items():
        frame[f"memory_bytes.hbm/{name}"] = nbytes * random.uniform(0.9, 1.1, count)
    frame["memory_bytes.ddr/optimizer"] = 8e9 * frame.get("var.offload_optimizer", pd.Series(0.0, index=frame.index))
    frame["usage.hbm"] = frame.filter(like="memory_bytes.hbm/").sum(axis="columns") / 76e9
    frame["usage.ddr"] = frame["memory_bytes.ddr/optimizer"] / 250e9
    for name, bound in CONFIG["objective"]["limits"].items():
        frame[f"limit.{name}"] = frame[name] / bound
    for name, share in {"accelerator": 0.78, "hbm": 0.08, "host": 0.06, "scale_up": 0.03, "scale_out": 0.05}.items():
        frame[f"capex.{name}"] = share * frame["capex_usd"]
        frame[f"power.{name}"] = share * frame["provisioned_power_w"] / 1.2
    frame["active_constraints"] = (
        "hbm 98.4%; " + ("decode 62%" if serving else "backward 47%") + " of time; tp 13% of time"
    )
    return frame


def example_ops(serving: bool) -> pd.DataFrame:
    rows = []
    for name, kernel, intensity, seconds in (
        ("qkv", "gemm", 1600.0, 8e-4), ("attention_output", "gemm", 1200.0, 3e-4), ("mlp_up", "gemm", 1900.0, 1.1e-3),
        ("mlp_down", "gemm", 1900.0, 1.1e-3), ("scores", "attention_prefill", 180.0, 4e-4),
        ("softmax", "elementwise", 2.5, 1.2e-4), ("layer_norm", "elementwise", 1.1, 9e-5),
        ("gelu", "elementwise", 4.0, 1.5e-4),
    ):  # fmt: skip
        for phase in ("prefill", "decode") if serving else ("forward", "backward"):
            each = seconds * (2 if phase == "backward" else 1)
            here = intensity / 50 if phase == "decode" else intensity
            peak = 67e12 if kernel == "elementwise" else 989e12
            rate = 0.75 * min(peak, here * 3.35e12)
            row = {"name": name, "phase": phase, "kernel": kernel, "count": 36.0, "time_s": each, "repeats": 64.0}
            row |= {"number_format": "vector" if kernel == "elementwise" else "bf16", "flops": rate * each}
            row |= {"nbytes": rate * each / here, "total_s": 36 * each, "energy_j": 3.0, "intensity": here}
            row |= {"achieved_flops_per_s": rate, "peak_flops_per_s": peak, "bandwidth_bytes_per_s": 3.35e12}
            rows.append(row)
    reduce = {
        "name": "tensor_reduce",
        "phase": rows[0]["phase"],
        "operation": "all_reduce",
        "axis": "tp",
        "count": 24.0,
    }
    rows.append(reduce | {"nbytes": 50e6, "time_s": 2e-4, "total_s": 4.8e-3, "energy_j": 0.5, "repeats": 64.0})
    return pd.DataFrame(rows)


def example_elasticities() -> pd.DataFrame:
    accelerator, up = "cluster.accelerator", "cluster.network.scale_up.fabric"
    rows = [
        (f"{accelerator}.peak_flops_per_s.bf16", 989e12, "datasheet", "nvidia2022h100", -0.61, -0.58),
        (f"{accelerator}.kernels.gemm.bf16.compute_ratio", 0.78, "fitted", "own_fit", -0.58, -0.55),
        (f"{accelerator}.price_usd", 26e3, "assumed", "street_price", 0.0, 0.55),
        (f"{up}.bandwidth_bytes_per_s", 450e9, "datasheet", "nvidia2022h100", -0.12, -0.09),
        (f"{up}.latency_s", 1e-6, "assumed", "", 0.003, 0.003),
        ("cluster.facility.pue", 1.2, "assumed", "uptime2023", 0.0, 0.13),
        ("cluster.facility.amortisation_s", 1.26e8, "assumed", "common", 0.0, -0.87),
        (f"{up}.usd_per_bytes_per_s", 6e-9, "derived", "", 0.0, 0.03),
        (f"{accelerator}.hbm.bandwidth_bytes_per_s", 3.35e12, "datasheet", "nvidia2022h100", -0.09, -0.08),
        (f"{accelerator}.hbm.energy_j_per_byte", 40e-12, "published", "oconnor2017", 0.0, 0.02),
        ("workload.kernel_slowdown", 1.0, "", "", 0.8, 0.76),
        (f"{accelerator}.kernels.attention.bf16.t0_s", 4e-6, "measured", "own", 0.0001, 0.0001),
    ]
    return pd.DataFrame(rows, columns=["path", "value", "kind", "source", "time_s", "usd_per_million_tokens"])


def write_run(folder: Path, serving: bool = False) -> Path:
    """A run folder as a search leaves it."""
    folder.mkdir(parents=True)
    config = CONFIG | {"name": "serve_example" if serving else "train_example"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "overrides.txt").write_text("cluster.device_count=1024\nmodel=gpt3_175b\n", encoding="utf-8")
    versions = {"python": "3.12.1", "jax": "0.10.0", "codesign": "0.1.0", "date": "2026-01-02"}
    (folder / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    designs = example_designs(serving)
    designs.to_parquet(folder / "designs.parquet")
    feasible = designs[designs["feasible"]].sort_values("time_s")
    front = feasible[feasible["usd_per_million_tokens"] <= feasible["usd_per_million_tokens"].cummin()]
    front.to_parquet(folder / "pareto.parquet")
    example_ops(serving).to_parquet(folder / "ops.parquet")
    example_elasticities().to_parquet(folder / "elasticities.parquet")
    summary = {"experiment": config["name"], "counts": {"legal plans": 1873, "points": 119872}, "seconds": 21.4}
    summary["claim"] = "Best of every legal plan on a grid, refined by gradients; no certificate"
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder
