"""Tables 2, 3 and 4 of the Photonic Fabric document: data-movement energy of pre-training, from plans and from scratch.

First of the recovered plans with the counting that they imply; then of the bytes that move, which is what `evaluate`
says of a scenario whose cluster names paths, and with the document's own pJ/bit; then of plans that this package finds.
"""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from _lib.celestisim_counting import Family
from _lib.celestisim_training import fastest_plans, moved_kj, timed_plans
from codesign.evidence.reproduction import Claim
from codesign.model.networks.fabrics import PathEnergy
from codesign.report.findings import BLUE, GREEN, ORANGE, beside, headline, panels

NAME = "pfa_energy"
KINDS = {  # of claims whose standing alone does not say it
    "transcription": r"PFA-0(07|08|45|46|47|48)\b|^text's 5 and 25",
    "note": r"^physical counting",
    "input": r"PFA-0(33|36|37|38|39|40|41|49)\b",
}
PJ_PER_BIT = 8e-12  # J/byte
BASELINE = "nvidia_baseline"
SCHEMES = {"tp": "table 2", "offload": "table 3", "pp": "table 4"}
CELL_BAR, PERCENT_BAR = 5e-4, 0.1
LEAST_MICRO_BATCH = 3.0  # of the recovered plans, but for one of 2
SLACK = 0.03  # step times nearer to each other than any model of them is to the truth
DEVICES = 4096.0  # "thousands of GPUs", section 4.2; the tables print no count

ELECTRICAL = {"adapter": 65, "switch": 35, "tray": 50, "offload": 200}  # section 4.2; offload fitted to table 3
PHOTONIC = {"adapter": 10, "switch": 10, "tray": 10, "offload": 50}  # what the tables need: fitted
PHOTONIC_TEXT = {"adapter": 5, "switch": 25, "tray": 10, "offload": 50}  # section 4.2; offload as above


def paths(pj_per_bit: dict[str, int]) -> PathEnergy:
    """Path energies of one technology, as `path_energy=electrical` and its relatives have them."""
    return PathEnergy(**{f"{part}_j_per_byte": value * PJ_PER_BIT for part, value in pj_per_bit.items()})


def table(name: str) -> pd.DataFrame:
    """A file of this folder."""
    return pd.read_csv(Path(__file__).parent / name)


def told_kj(plans: pd.DataFrame, photonic: dict[str, int], *, counted: bool) -> pd.DataFrame:
    """Plans with `tp_kj`, `pp_kj` and `offload_kj`; electrical and photonic systems lie in the same trays and racks."""
    electrical = (plans["system"] == BASELINE).to_numpy()
    one, other = (moved_kj(plans, paths(each), counted=counted) for each in (ELECTRICAL, photonic))
    return plans.assign(**{f"{name}_kj": np.where(electrical, one[name], other[name]) for name in SCHEMES})


def counted_kj(plans: pd.DataFrame, photonic: dict[str, int]) -> pd.DataFrame:
    """As the tables count."""
    return told_kj(plans, photonic, counted=True)


def physical_kj(plans: pd.DataFrame) -> pd.DataFrame:
    """Of the bytes that move, each on its own path."""
    return told_kj(plans, PHOTONIC, counted=False)


def saved(frame: pd.DataFrame) -> pd.DataFrame:
    """Savings against the baseline of the same model: columns model, system, tp, pp, offload."""
    base = frame[frame["system"] == BASELINE].set_index("model")
    others = frame[frame["system"] != BASELINE]
    columns = {name: f"{name}_kj" for name in SCHEMES}
    savings = {n: 1 - others[c].to_numpy() / base.loc[others["model"], c].to_numpy() for n, c in columns.items()}
    return others[["model", "system"]].assign(**savings)


@functools.cache
def recovered() -> pd.DataFrame:
    """The recovered plans with the tables' counting."""
    return counted_kj(table("plans.csv"), PHOTONIC)


@functools.cache
def legal(*, sharded: bool = False) -> pd.DataFrame:
    """Every plan of this package's own search that fits, with the tables' counting."""
    models = table("plans.csv")[["model", "layers", "hidden", "head_dim"]].drop_duplicates()
    plans = timed_plans(models, DEVICES, sharded=sharded).assign(devices=DEVICES)
    return counted_kj(plans, PHOTONIC)


def found(*, sharded: bool = False) -> pd.DataFrame:
    """The fastest of them for each model and system; where none fits there is no row."""
    return fastest_plans(legal(sharded=sharded))


def thriftiest() -> pd.DataFrame:
    """Of the plans that come within 3 % of the fastest, the one that moves its data with the least energy."""
    plans = legal()
    fastest = plans.groupby(["model", "system"])["time_s"].transform("min")
    near = plans[plans["time_s"] <= (1 + SLACK) * fastest]
    total = near[[f"{name}_kj" for name in SCHEMES]].sum(axis=1)
    return near.loc[total.groupby([near["model"], near["system"]], sort=False).idxmin()].reset_index(drop=True)


def regime() -> pd.DataFrame:
    """The fastest of those whose micro-batches are no smaller than the document's: a limit on what is streamed."""
    plans = legal()
    return fastest_plans(plans[plans["micro_batch"] >= LEAST_MICRO_BATCH])


def why_offloading_reverses() -> list[Claim]:
    """What becomes of a quarter of the energy a byte when every micro-batch streams the weights again."""
    plans, kept = found(), regime()
    plans = plans.assign(bytes=plans["offload_kj"] / np.where(plans["system"] == BASELINE, *_offload_pj()))
    base = plans[plans["system"] == BASELINE].set_index("model")
    others = plans[plans["system"] != BASELINE]
    more = others["bytes"].to_numpy() / base.loc[others["model"], "bytes"].to_numpy()
    slower = kept.set_index(["model", "system"])["time_s"] / plans.set_index(["model", "system"])["time_s"]
    photonic = [index for index in slower.dropna().index if index[1] != BASELINE]
    per_byte = _offload_pj()[1] / _offload_pj()[0]
    numbers = {
        "micro-batch of the electrical baseline, median": base["micro_batch"].median(),
        "micro-batch of the photonic systems, median": others["micro_batch"].median(),
        "energy of an offloaded byte over the baseline's": per_byte,
        "offloaded bytes over the baseline's, median": float(np.median(more)),
        "offloading energy over the baseline's, median (the product of both)": per_byte * float(np.median(more)),
        "step time with micro-batches of 3 and more over the fastest, photonic, median": slower[photonic].median(),
    }
    return [Claim(NAME, f"own plans: {text}", None, float(value), None, "derived") for text, value in numbers.items()]


def _offload_pj() -> tuple[int, int]:
    return ELECTRICAL["offload"], PHOTONIC["offload"]


def claims() -> list[Claim]:
    """Cells, percentages, statements of the text, contradictions, and the second time from scratch."""
    return [*cells(), *statements(), *contradictions(), *second_time(), *why_offloading_reverses()]


def cells() -> list[Claim]:
    """Every printed kJ and per cent."""
    result, printed = [], table("published.csv")
    energies = recovered().rename(
        columns=lambda name: name.removesuffix("_kj") if name.endswith("_kj") else f"plan_{name}"
    )
    model = energies.melt(["plan_model", "plan_system"], list(SCHEMES), "scheme", "kj")
    model = model.rename(columns={"plan_model": "model", "plan_system": "system"})
    base = model[model["system"] == BASELINE].rename(columns={"kj": "base"}).drop(columns="system")
    both = printed.merge(model, on=["scheme", "model", "system"]).merge(base, on=["scheme", "model"])
    for row in both.itertuples():
        text = f"{SCHEMES[row.scheme]}, {row.model} {row.system}"
        halved = row.scheme == "offload" and plan_of(row.model, row.system)["pp"] == 2
        standing = "fitted: the half of two stages is empirical" if halved else "fitted: plan recovered from the cell"
        result.append(Claim(NAME, f"{text}: kJ", row.energy_kj, row.kj, CELL_BAR, standing))
        if row.system != BASELINE:
            percent = 100 * row.kj / row.base
            points = abs(percent - row.percent_of_nvidia)
            result.append(
                Claim(NAME, f"{text}: per cent of the baseline (error: points)", row.percent_of_nvidia, percent,
                      PERCENT_BAR, standing, error=points)
            )  # fmt: skip
    return result


def plan_of(model: str, system: str) -> pd.Series:
    """The recovered plan of a cell."""
    plans = table("plans.csv")
    return plans[(plans["model"] == model) & (plans["system"] == system)].iloc[0]


def statements() -> list[Claim]:
    """What the text says about the tables, against the tables' own cells."""
    cells_saved = saved(recovered())
    every = cells_saved[list(SCHEMES)].to_numpy().ravel()
    least, most = 100 * every.min(), 100 * every.max()
    reduction = 1 / (1 - cells_saved["tp"].max())
    stated = {
        "PFA-007": ("savings of data movement, lower bound, per cent (abstract); smallest cell", 60.0, least),
        "PFA-008": ("savings of data movement, upper bound, per cent (abstract); largest cell", 90.0, most),
        "PFA-045": ("reduction of communication energy, lower, per cent (section 5); smallest cell", 60.0, least),
        "PFA-046": ("reduction of communication energy, upper, per cent (section 5); largest cell", 90.0, most),
        "PFA-047": ("tensor-parallel energy reduced by up to a factor of; largest cell", 10.0, reduction),
        "PFA-048": ("pipeline savings 'consistently near', per cent; median", 80.0, 100 * cells_saved["pp"].median()),
    }
    result = [
        Claim(NAME, f"{key}: {text}", paper, float(model), None, "derived: the text rounds its own tables")
        for key, (text, paper, model) in stated.items()
    ]
    used = {
        "PFA-033": ("switches between racks", 3.0, float(paths(ELECTRICAL).inter_rack_switches)),
        "PFA-036": ("generic adapter, pJ/bit", 65.0, ELECTRICAL["adapter"]),
        "PFA-037": ("generic switch, pJ/bit", 35.0, ELECTRICAL["switch"]),
        "PFA-038": ("NVLink inside a tray, pJ/bit", 50.0, ELECTRICAL["tray"]),
        "PFA-039": ("photonic transceiver, pJ/bit; the tables need", 5.0, PHOTONIC["adapter"]),
        "PFA-040": ("photonic switch, pJ/bit; the tables need", 25.0, PHOTONIC["switch"]),
        "PFA-041": ("photonic path inside a tray, pJ/bit", 10.0, PHOTONIC["tray"]),
        "PFA-049": ("sequences of the global batch", 3072.0, float(Family(1.0, 1.0, 1.0).batch)),
    }
    for key, (text, paper, value) in used.items():
        contradicted = key in ("PFA-039", "PFA-040")
        standing = "fitted: contradicts the text" if contradicted else "published: an input"
        result.append(Claim(NAME, f"{key}: {text}", paper, float(value), None if contradicted else 0.0, standing))
    switches = (ELECTRICAL["offload"] - 2 * ELECTRICAL["adapter"]) / ELECTRICAL["switch"]
    reason = "not determined: table 3 alone, 200 pJ/bit, would mean 2 switches and two adapters, not 4 to 12"
    for key, count in (("PFA-034", 4.0), ("PFA-035", 12.0)):
        result.append(Claim(NAME, f"{key}: switches on the way to an external store", count, switches, None, reason))
    return result


def contradictions() -> list[Claim]:
    """The tables' cells with the text's pJ/bit, and the physical count of the same plans."""
    ours, text = recovered(), counted_kj(table("plans.csv"), PHOTONIC_TEXT)
    photonic = ours["system"] != BASELINE
    excess = (text["tp_kj"] / ours["tp_kj"])[photonic] - 1
    physical = saved(physical_kj(ours))
    rows = [("smallest", excess.min()), ("largest", excess.max())]
    result = [
        Claim(NAME, f"text's 5 and 25 pJ/bit for transceiver and switch: {kind} excess of a photonic cell, per cent",
              0.0, 100 * float(value), None, "published: contradicts the tables")
        for kind, value in rows
    ]  # fmt: skip
    for scheme in SCHEMES:
        told = float(100 * saved(ours)[scheme].median())
        counted = float(100 * physical[scheme].median())
        words = f"physical counting of the recovered plans, {scheme}: median saving, per cent (the tables' own beside)"
        result.append(Claim(NAME, words, told, counted, None, "derived"))
    return result


def second_time() -> list[Claim]:
    """Savings of the plans found here; a cell outside 50-94 % counts as one that misses, as does one no plan fits."""
    printed, result = saved(recovered()), []
    fastest = saved(found())
    lost = [f"{row.model} {row.system}" for row in printed.itertuples() if not _holds(fastest, row.model, row.system)]
    standing = "derived" + (f"; no plan fits {', '.join(lost)}" if lost else "")
    for scheme in SCHEMES:
        outside = 1 - float(fastest[scheme].between(0.5, 0.94).sum()) / len(printed)
        words = f"own plan search, {scheme}: median saving, per cent (error: share of cells outside 50-94 %)"
        told, ours = (100 * float(frame[scheme].median()) for frame in (printed, fastest))
        result.append(Claim(NAME, words, told, ours, 0.0, standing, error=outside))
    median = float(fastest["pp"].median())
    words = "own plan search, pp: median saving, per cent (error: distance from 75-85 %)"
    distance = max(0.75 - median, median - 0.85, 0.0)
    result.append(Claim(NAME, words, 80.0, 100 * median, 0.0, "derived", error=distance))
    others = {
        f"own plan search, least energy within {SLACK:.0%} of the fastest": saved(thriftiest()),
        "own plan search, optimizer state sharded over the replicas": saved(found(sharded=True)),
        f"own plan search, micro-batches of {LEAST_MICRO_BATCH:g} and more as in the document": saved(regime()),
    }
    for words, savings in others.items():
        for scheme in SCHEMES:
            told, ours = (100 * float(frame[scheme].median()) for frame in (printed, savings))
            inside = int(savings[scheme].between(0.5, 0.94).sum())
            text = f"{words}, {scheme}: median saving, per cent ({inside} of {len(printed)} cells in 50-94 %)"
            result.append(Claim(NAME, text, told, ours, None, "derived"))
    return result


def _holds(frame: pd.DataFrame, model: str, system: str) -> bool:
    return bool(((frame["model"] == model) & (frame["system"] == system)).any())


def tables() -> dict[str, pd.DataFrame]:
    """Savings under each reading, and the plans found."""
    readings = {
        "recovered plans, tables' counting": saved(recovered()),
        "recovered plans, text's 5 and 25 pJ/bit": saved(counted_kj(table("plans.csv"), PHOTONIC_TEXT)),
        "recovered plans, physical counting": saved(physical_kj(recovered())),
        "own plans, tables' counting": saved(found()),
        "own plans, physical counting": saved(physical_kj(found())),
        f"own plans, least energy within {SLACK:.0%} of the fastest": saved(thriftiest()),
        "own plans, optimizer state sharded": saved(found(sharded=True)),
        f"own plans, micro-batches of {LEAST_MICRO_BATCH:g} and more": saved(regime()),
    }
    rows = []
    for reading, frame in readings.items():
        for scheme in SCHEMES:
            low, middle, high = (100 * frame[scheme].quantile(q) for q in (0.0, 0.5, 1.0))
            rows.append({"reading": reading, "scheme": scheme, "least": low, "median": middle, "most": high})
    return {"Savings in per cent": pd.DataFrame(rows), "Plans found": found()}


def figures() -> dict:
    """Savings by model size, from recovered plans (circles) and from own ones (crosses)."""
    figure, (row,) = panels(3.5, 1, 3, sharey=True)
    own: dict[str, np.ndarray] = {}
    for axes, (scheme, name) in zip(row, SCHEMES.items(), strict=True):
        for frame, marker in ((recovered(), "o"), (found(), "x")):
            savings = saved(frame)
            for system, part in savings.groupby("system"):
                colour = {"2": BLUE, "4": GREEN, "6": ORANGE}[system[5]]
                axes.plot(part["model"], 100 * part[scheme], marker, color=colour, fillstyle="none", markersize=4.5)
                if scheme == "tp" and marker == "o":
                    up = {"2": 0, "4": 9, "6": 18}[system[5]]
                    beside(axes, f"{system[5]} TB appliance", 0, 2 + up, colour, (0.1, 0))
            if marker == "x":
                own[scheme] = 100 * savings[scheme].to_numpy(dtype=float)
        axes.set_title(f"{name}: {scheme}")
        axes.axhline(0, color="0.4", linewidth=1)
        axes.tick_params(axis="x", rotation=90, labelsize=7)
        axes.grid(axis="x", visible=False)
    row[0].set_ylabel("energy saved against NVIDIA, %")
    beside(row[0], "circles: recovered plans\ncrosses: own search", 0, -20, "0.3", (0.1, 0))
    tp, offload = (f"{own[name].min():.0f} to {own[name].max():.0f} %" for name in ("tp", "offload"))
    headline(figure, f"Traffic of tensor parallelism moves with {tp} less energy whoever chose the plans; what "
             f"offloading saves hangs on the plan: {offload} with plans of our own")  # fmt: skip
    return {"Savings by model": figure}
