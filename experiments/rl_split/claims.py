"""Devices between rollouts and a trainer: published runs of verl beside the model, and the best split by mode.

One number is inferred: the mean response, which the sources do not state, from the updates of one row. A second set of
claims takes the published seconds of updates as they are, so that rollouts and the way to take turns are judged alone.
"""

from functools import cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Scenario, evaluate
from codesign.config import scenario_from_config
from codesign.core import replace
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREY, ORANGE, headline, panels
from codesign.staging import at_many

NAME = "rl_split"
MODES = ("colocated", "synchronous", "one_step_off", "asynchronous")  # in the order of plan.mode
KINDS = {"fitted": "^inferred", "transcription": "^published alone"}
BASE = (
    "workload=rl_post_training", "model=qwen25_7b", "accelerator=h20",
    "plan.cp=4", "plan.rollout_tp=4", "plan.rollout_slots=1024",  # sp_size, gen_tp [verl_async]; verl's max_num_seqs
    "workload.input_tokens=256",  # assumed: questions of dapo-math-17k in their template
    "workload.rollout.kernel_slowdown=1.129", "workload.rollout.step_overhead_s=6.965e-5",  # conf/framework/vllm.yaml
)  # fmt: skip
MOST_TOKENS = {"verl_async": 28672.0, "verl_one_step_off": 20480.0}
ENGINE = {"verl_async": 4.0, "verl_one_step_off": 2.0}  # rollout_tp; the second is not stated: two engines on 4 devices
BAR_STEP, BAR_RATIO = 0.30, 0.15
METRICS = ("time_s", "rollout_s", "scoring_s", "training_s")
DEVICES, SPLITS = 128.0, tuple(range(16, 113, 8))
SLOTS, DEGREES = (64.0, 128.0, 256.0, 512.0, 1024.0), (1.0, 2.0, 4.0)


@cache
def published() -> pd.DataFrame:
    """Rows of both sources."""
    return pd.read_csv(Path(__file__).parent / "published.csv")


@cache
def base() -> Scenario:
    """The job on 128 H20: a search may vary every number that the rows differ in."""
    return scenario_from_config(*BASE)


PATHS = {
    "mode": "plan.mode", "devices": "plan.device_count", "rollout_devices": "plan.rollout_devices",
    "staleness": "plan.staleness", "rollout_tp": "plan.rollout_tp", "slots": "plan.rollout_slots", "cp": "plan.cp",
    "tokens": "workload.output_tokens", "most": "workload.max_output_tokens", "slowdown": "workload.kernel_slowdown",
    "old_log_probs": "workload.old_log_probs",
}  # fmt: skip


@cache
def _many():
    """Metrics of many points at once."""
    design = base()  # built outside of the trace

    def one(point):
        result = evaluate(replace(design, {PATHS[name]: value for name, value in point.items()}))
        return {name: result.get(name) for name in (*METRICS, "usage.hbm")} | {
            "broken": sum(result.violations.values())
        }

    return at_many(one)


def priced(points: pd.DataFrame) -> pd.DataFrame:
    """Metrics of each row of points, `updates_s` among them."""
    columns = {name: jnp.asarray(points[name].to_numpy(float)) for name in PATHS}
    result = pd.DataFrame({name: np.asarray(value) for name, value in _many()(columns).items()}, index=points.index)
    return result.assign(updates_s=result["training_s"] - result["scoring_s"])


def points_of(rows: pd.DataFrame, tokens: pd.Series | float, slowdown: pd.Series | float = 1.0) -> pd.DataFrame:
    """Points of published rows at a mean response and a slowdown of the trainer."""
    return pd.DataFrame({
        "mode": rows["mode"].map(MODES.index).astype(float), "devices": rows["devices"],
        "rollout_devices": rows["rollout_devices"], "staleness": rows["staleness"].fillna(0.0),
        "rollout_tp": rows["source"].map(ENGINE), "slots": 1024.0, "cp": 4.0, "tokens": tokens,
        "most": rows["source"].map(MOST_TOKENS), "slowdown": slowdown,
        "old_log_probs": rows["scoring_s"].notna().astype(float),
    })  # fmt: skip


@cache
def mean_response(source: str) -> float:
    """Mean response in tokens: that at which a source's first row has its published seconds of updates."""
    row = published()[published()["source"] == source].iloc[:1]
    tried = np.geomspace(50, 6000, 48)
    rows = pd.concat([row] * len(tried), ignore_index=True)
    seconds = priced(points_of(rows, pd.Series(tried)))["updates_s"].to_numpy()
    return float(np.interp(float(row["updates_s"].iloc[0]), np.maximum.accumulate(seconds), tried))


@cache
def modelled(*, given_updates: bool = False) -> pd.DataFrame:
    """The model's seconds beside each published row; where updates are given, of a trainer that takes as long."""
    rows = published()
    tokens = rows["source"].map(mean_response)
    slowdown = pd.Series(1.0, rows.index)
    result = priced(points_of(rows, tokens, slowdown))
    for _ in range(3 if given_updates else 0):
        slowdown = np.maximum(slowdown * rows["updates_s"] / result["updates_s"], 0.1)
        result = priced(points_of(rows, tokens, slowdown))
    return result.assign(case=rows["case"], slowdown=slowdown)


@cache
def splits() -> pd.DataFrame:
    """The fastest step of each mode and split on 128 H20, over tensor degree and slots of the rollout engines."""
    rows = [
        {"mode": float(MODES.index(mode)), "devices": DEVICES, "rollout_devices": float(apart), "staleness": 1.0,
         "rollout_tp": degree, "slots": slots, "cp": 4.0, "tokens": mean_response("verl_async"), "most": 28672.0,
         "slowdown": 1.0, "old_log_probs": float(mode != "asynchronous")}
        for mode in MODES
        for apart in ((0,) if mode == "colocated" else SPLITS)
        for degree in DEGREES
        for slots in SLOTS
    ]  # fmt: skip
    points = pd.DataFrame(rows)
    result = priced(points)
    table = points.join(result).assign(name=[MODES[int(place)] for place in points["mode"]])
    table = table[(table["usage.hbm"] <= 1) & (table["broken"] == 0)]
    best = table.loc[table.groupby(["name", "rollout_devices"])["time_s"].idxmin()]
    return best.reset_index(drop=True)


def best_of(mode: str) -> pd.Series:
    """The best split of a mode."""
    table = splits()
    own = table[table["name"] == mode]
    return own.loc[own["time_s"].idxmin()]


def speed_up(of: pd.DataFrame, devices: int) -> float:
    """Step of colocated over asynchronous devices, as many in all."""
    rows = published()
    at = rows["devices"] == devices
    beside = of.loc[at & (rows["mode"] == "asynchronous") & (rows["staleness"] == 0.5), "time_s"].iloc[0]
    return float(of.loc[at & (rows["mode"] == "colocated"), "time_s"].iloc[0] / beside)


def claims() -> list[Claim]:
    """What is inferred, parts and steps of every row, ratios, orderings of the best splits."""
    rows, alone, given = published(), modelled(), modelled(given_updates=True)
    printed = rows.rename(columns={"step_s": "time_s"})
    beside, inferred = "derived", "fitted 1 on 1"
    result = [
        Claim(NAME, f"inferred: updates of {row['case']}, s, by a mean response of {mean_response(row['source']):.0f}",
              row["updates_s"], alone["updates_s"][at], 0.02, inferred)
        for at, row in rows.iterrows() if row["case"] in ("colocated on 32", "colocated on 16, FSDP2")
    ]  # fmt: skip
    for name, label in (("updates_s", "updates"), ("scoring_s", "log-probabilities"), ("rollout_s", "rollouts")):
        result += [
            Claim(NAME, f"{row['case']}: {label}, s", row[name], alone[name][at], None, beside)
            for at, row in rows.iterrows()
            if row[name] == row[name] and not (name == "updates_s" and row["case"] in FIRST)
        ]
    for at, row in rows.iterrows():
        bar = None if row["case"] in MISSED else BAR_STEP
        words = f"{row['case']}: step with the published updates, s"
        result.append(Claim(NAME, words, row["step_s"], given["time_s"][at], bar, beside))
    for devices in (32, 64, 128):
        paper = speed_up(printed, devices)
        text = f"colocated over asynchronous, {devices} H20"
        pace, own_bar = speed_up(alone, devices), BAR_RATIO if devices > 32 else None
        result.append(Claim(NAME, f"{text}: equal work of a trainer's device", paper, pace, None, beside))
        pace = speed_up(given, devices)
        result.append(Claim(NAME, f"{text}: with the published updates", paper, pace, own_bar, beside))
        at = rows["devices"] == devices
        own = rows[at & (rows["mode"] == "colocated")].iloc[0]
        other = rows[at & (rows["mode"] == "asynchronous") & (rows["staleness"] == 0.5)].iloc[0]
        work = own["updates_s"] * devices / (other["updates_s"] * (devices - other["rollout_devices"]))
        text = f"published alone: device-seconds of updates, colocated over asynchronous, {devices} H20"
        result.append(Claim(NAME, text, None, work, None, "not determined: the sources say no reason"))
    return result + orderings()


FIRST = ("colocated on 32", "colocated on 16, FSDP2")
MISSED = ("asynchronous on 64 + 64, staleness 0.1", "colocated on 16, FSDP2")  # why: see the page


def orderings() -> list[Claim]:
    """What the best splits are to each other."""
    best = {mode: best_of(mode) for mode in MODES}
    time = {mode: float(row["time_s"]) for mode, row in best.items()}

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("best splits on 128 H20: asynchronous <= one step off <= synchronous",
                 time["asynchronous"] <= time["one_step_off"] <= time["synchronous"]),
        ordering("synchronous devices apart are slower than shared ones", time["colocated"] < time["synchronous"]),
        ordering("a split off by a quarter of the devices costs the asynchronous mode more than 10 %", _off() > 1.10),
        *(Claim(NAME, f"best rollout devices of 128: {mode}", None, float(row["rollout_devices"]), None, "derived")
          for mode, row in best.items() if mode != "colocated"),
        *(Claim(NAME, f"best step, s: {mode}", None, time[mode], None, "derived") for mode in MODES),
    ]  # fmt: skip


def _off() -> float:
    """The better of two asynchronous splits that are 32 devices off the best, over it."""
    own = splits()
    own = own[own["name"] == "asynchronous"].set_index("rollout_devices")["time_s"]
    best = float(own.idxmin())
    near = [float(own[place]) for place in (best - 32, best + 32) if place in own.index]
    return min(near) / float(own.min())


def tables() -> dict[str, pd.DataFrame]:
    """Published rows beside the model, and the splits."""
    rows, alone, given = published(), modelled(), modelled(given_updates=True)
    both = rows[["case", "step_s", "rollout_s", "scoring_s", "updates_s"]].assign(
        model_step_s=alone["time_s"], model_rollout_s=alone["rollout_s"], model_scoring_s=alone["scoring_s"],
        model_updates_s=alone["updates_s"], step_with_published_updates_s=given["time_s"],
        trainer_slowdown=given["slowdown"],
    )  # fmt: skip
    shown = ["name", "rollout_devices", "rollout_tp", "slots", "time_s", "rollout_s", "training_s"]
    return {"Published steps beside the model": both, "Fastest step of each split on 128 H20": splits()[shown]}


def figures() -> dict[str, Figure]:
    """Step by split for each mode, and published steps beside the model's."""
    figure, ((left, right),) = panels(3.3, 1, 2)
    table = splits()
    for mode, colour in zip(MODES[1:], (GREY, ORANGE, BLUE), strict=True):
        own = table[table["name"] == mode].sort_values("rollout_devices")
        left.plot(own["rollout_devices"], own["time_s"], color=colour, marker="o", ms=3, label=mode.replace("_", " "))
    left.axhline(best_of("colocated")["time_s"], color="#333333", ls=":", lw=1, label="colocated")
    left.set_xlabel("devices for rollouts, of 128 H20")
    left.set_ylabel("seconds of a step")
    left.set_ylim(bottom=0)
    left.legend(fontsize=7, frameon=False)
    rows, given = published(), modelled(given_updates=True)
    for mode, colour, mark in (
        ("colocated", "#333333", "s"),
        ("asynchronous", BLUE, "o"),
        ("one_step_off", ORANGE, "^"),
    ):
        at = rows["mode"] == mode
        right.plot(rows["step_s"][at], given["time_s"][at], mark, color=colour, ms=4, label=mode.replace("_", " "))
    ends = [100, 1000]
    right.plot(ends, ends, color=GREY, lw=0.8)
    right.set(xscale="log", yscale="log", xlabel="published step, s", ylabel="model, updates as published, s")
    right.legend(fontsize=7, frameon=False)
    best = best_of("asynchronous")
    headline(figure, f"{best['rollout_devices']:.0f} of 128 H20 for rollouts are best where they go on through new"
             f" weights; {best_of('one_step_off')['rollout_devices']:.0f} one step off")  # fmt: skip
    return {"Step by split and published steps": figure}
