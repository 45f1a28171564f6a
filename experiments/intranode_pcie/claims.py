"""One message between two hosts over PCIe, InfiniBand and PCIe: the measured latencies and throughputs of a cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import least_squares

from codesign import replace
from codesign.config import compose, plain
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import BufferedCopy, ThreeStagePath, WindowedThroughput, infiniband, load_store, pcie
from codesign.report.findings import BLUE, GREEN, ORANGE, PURPLE, Label, headline, name_ends, panels, plain_ticks

NAME = "intranode_pcie"
KINDS = {  # of claims whose standing alone does not say it
    "input": r"U0(07|13|14|15|16|17|20|21|23|25|39|40)\b",
    "transcription": r"U0(22|24|26|27|28|29|30|31|37|41|42)\b",
}
HERE = Path(__file__).resolve().parent
TESTS = ("ib_write", "ib_send", "ib_read", "osu_latency")
INLINE_BYTES = {"ib_write": 220.0, "ib_send": 236.0, "ib_read": 0.0}  # a send carries 16 bytes less of header
BARS = {"ib_write": 0.015, "ib_send": 0.015, "ib_read": 0.02, "osu_latency": 0.05}  # mean of table 2
LARGEST = {"ib_write": 0.05}
KNOBS = {"ib_write": ("start_s", "read_s", "ramp_s", "ramp_bytes"), "ib_read": ("start_s", "ramp_s", "ramp_bytes")}
START = {"start_s": 1.2e-6, "read_s": 4e-7, "ramp_s": 6e-7, "ramp_bytes": 1.4e4}
COPY_START = {"start_s": 4e-7, "cached_s_per_byte": 2e-10, "uncached_s_per_byte": 5e-11, "handshake_s": 2e-6}


def latency_table() -> pd.DataFrame:
    """Table 2, microseconds."""
    return pd.read_csv(HERE / "table2_latency_us.csv")


def bandwidth_table() -> pd.DataFrame:
    """Table 1; printed as GiB/s, which exceeds what the wire carries, so GB/s."""
    return pd.read_csv(HERE / "table1_gb_per_s.csv")


def bare_path(test: str) -> ThreeStagePath:
    """Gen3 x16, EDR, Gen3 x16 with the document's sizes of packets; nothing fitted."""
    return ThreeStagePath(pcie(3), infiniband("EDR"), pcie(3), 1e-6, inline_bytes=INLINE_BYTES[test])


def fitted(model, names: dict[str, float], predict: Callable, sizes: np.ndarray, values: np.ndarray):
    """`model` with the named numbers fitted: least squared relative errors over the rows."""

    def at(logs: np.ndarray):
        return replace(model, {name: float(value) for name, value in zip(names, np.exp(logs), strict=True)})

    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.asarray(predict(at(logs), sizes)) / values - 1

    start = np.log(list(names.values()))
    return at(least_squares(residuals, start, bounds=(start - 4, start + 4), x_scale=0.1).x)


def latency_us(model, sizes: np.ndarray) -> np.ndarray:
    """Of messages of these sizes."""
    return 1e6 * np.asarray(model.time_s(jnp.asarray(sizes)))


def throughput(model: WindowedThroughput, sizes: np.ndarray) -> np.ndarray:
    """GB/s."""
    return 1e-9 * np.asarray(model.bytes_per_s(jnp.asarray(sizes)))


def fit_path(test: str, rows: slice = slice(None)) -> ThreeStagePath:
    """The path of an InfiniBand test, its four constants (three for reads) fitted on these rows of table 2."""
    table = latency_table().iloc[rows]
    names = {name: START[name] for name in KNOBS.get(test, KNOBS["ib_write"])}
    sizes = table["msg_size_bytes"].to_numpy(dtype=float)
    return fitted(bare_path(test), names, latency_us, sizes, table[f"{test}_us"].to_numpy())


def fit_copy(path: ThreeStagePath) -> BufferedCopy:
    """The library on top of a write: four constants fitted, the two sizes of its buffers read off the table."""
    table = latency_table()
    sizes = table["msg_size_bytes"].to_numpy(dtype=float)
    return fitted(BufferedCopy(path), COPY_START, latency_us, sizes, table["osu_latency_us"].to_numpy())


def models() -> dict[str, ThreeStagePath | BufferedCopy]:
    """Every test of table 2."""
    paths = {test: fit_path(test) for test in TESTS[:3]}
    return paths | {"osu_latency": fit_copy(paths["ib_write"])}


def windows() -> dict[str, WindowedThroughput]:
    """Every test of table 1: three constants each."""
    table, result = bandwidth_table(), {}
    sizes = table["msg_size_bytes"].to_numpy(dtype=float)
    for test in TESTS:
        start = {"interval_s": 3e-7, "bandwidth_bytes_per_s": 11.8e9, "sharpness": 4.0}
        values = table[f"{test}_GB_per_s"].to_numpy()
        result[test] = fitted(WindowedThroughput(3e-7, 11.8e9), start, throughput, sizes, values)
    return result


def claims() -> list[Claim]:
    """Both tables number by number, their means against the bars, halves, and what the text says in numbers."""
    return latency_claims() + halves() + bandwidth_claims() + structure() + stated()


def latency_claims() -> list[Claim]:
    """Table 2."""
    table, rows = latency_table(), []
    for test, model in models().items():
        count = {"ib_read": 3, "osu_latency": 4}.get(test, 4)
        standing = f"fitted {count} on 16" + (" and 2 sizes, on top of ib_write's 4" if test == "osu_latency" else "")
        predicted = latency_us(model, table["msg_size_bytes"].to_numpy(dtype=float))
        rows += number_rows(f"table 2 {test}", "us", table["msg_size_label"], table[f"{test}_us"], predicted, standing)
        rows += summary(f"table 2 {test}", table[f"{test}_us"], predicted, BARS[test], LARGEST.get(test), standing)
        constants = constants_of(model)
        rows += [
            Claim(NAME, f"constant of {test}: {key}", None, value, None, standing) for key, value in constants.items()
        ]
    return rows


def constants_of(model) -> dict[str, float]:
    """The fitted numbers of a path, in ns, bytes and ns per byte."""
    if isinstance(model, BufferedCopy):
        return {name: 1e9 * float(getattr(model, name)) for name in COPY_START}
    values = {name: float(getattr(model, name)) for name in ("start_s", "read_s", "ramp_s")}
    return {name: 1e9 * value for name, value in values.items()} | {"ramp_bytes": float(model.ramp_bytes)}


def number_rows(label, unit, sizes, measured, predicted, standing) -> list[Claim]:
    """One row a number, without bars: those are on the means."""
    return [
        Claim(NAME, f"{label} {size}, {unit}", float(value), float(model), None, standing)
        for size, value, model in zip(sizes, measured, predicted, strict=True)
    ]


def summary(label, measured, predicted, mean_bar, largest_bar, standing) -> list[Claim]:
    """Mean and largest error of a column."""
    result = np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return [
        Claim(NAME, f"{label}: mean error (error: itself)", None, float(result.mean()), mean_bar, standing,
              error=float(result.mean())),
        Claim(NAME, f"{label}: largest error (error: itself)", None, float(result.max()), largest_bar, standing,
              error=float(result.max())),
    ]  # fmt: skip


def halves() -> list[Claim]:
    """ib_write from one half of its rows, the other half predicted, both ways round."""
    table, result = latency_table(), []
    for fit_on, ask in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        part = table.iloc[ask]
        predicted = latency_us(fit_path("ib_write", fit_on), part["msg_size_bytes"].to_numpy(dtype=float))
        result += list(np.abs(predicted / part["ib_write_us"].to_numpy() - 1))
    mean, largest = float(np.mean(result)), float(np.max(result))
    return [
        Claim(NAME, "table 2 ib_write, each half from the other: mean error (error: itself)", None, mean, 0.02,
              "held out", error=mean),
        Claim(NAME, "table 2 ib_write, each half from the other: largest error", None, largest, None, "held out",
              error=largest),
    ]  # fmt: skip


def bandwidth_claims() -> list[Claim]:
    """Table 1."""
    table, rows = bandwidth_table(), []
    for test, model in windows().items():
        measured, standing = table[f"{test}_GB_per_s"], "fitted 3 on 16"
        predicted = throughput(model, table["msg_size_bytes"].to_numpy(dtype=float))
        rows += number_rows(f"table 1 {test}", "GB/s", table["msg_size_label"], measured, predicted, standing)
        bars = (0.03, 0.12) if test == "ib_write" else (None, None)
        rows += summary(f"table 1 {test}", measured, predicted, *bars, standing)
    write = windows()["ib_write"]
    rows += [
        Claim(NAME, "constant of table 1 ib_write: interval, ns", None, 1e9 * float(write.interval_s), None,
              "fitted 3 on 16"),
        Claim(NAME, "constant of table 1 ib_write: rate, GB/s", None, 1e-9 * float(write.bandwidth_bytes_per_s), None,
              "fitted 3 on 16"),
    ]  # fmt: skip
    return rows


def structure() -> list[Claim]:
    """Why a pipeline: the document's equation stage by stage, and one bottleneck, with the same freedom to fit."""
    table = latency_table()
    sizes, measured = table["msg_size_bytes"].to_numpy(dtype=float), table["ib_write_us"].to_numpy()
    path = fit_path("ib_write")
    near, wire, _ = (float(value) for value in path.stages_s_per_byte())
    rows = []
    for text, per_byte in (
        ("every stage in full, one after the other", 2 * near + wire),
        ("one bottleneck", max(near, wire)),
    ):

        def predict(start: np.ndarray, per_byte: float = per_byte) -> np.ndarray:
            read = np.where(sizes > INLINE_BYTES["ib_write"], start[1], 0.0)
            return 1e6 * (start[0] + read + sizes * per_byte)

        start = least_squares(lambda x: predict(x) / measured - 1, [1e-6, 4e-7], x_scale=1e-7).x
        result = float(np.mean(np.abs(predict(start) / measured - 1)))
        words = f"table 2 ib_write with {text}: mean error"
        rows.append(Claim(NAME, words, None, result, None, "fitted 2 on 16", error=result))
    return rows


def stated() -> list[Claim]:
    """Claims U001-U031 and U037-U042; those of the simulated interference stand in its own experiments."""
    return link_claims() + cluster_claims() + measured_claims()


def link_claims() -> list[Claim]:
    """Rates a lane, and equation 1."""
    lane = {generation: float(pcie(generation).wire_bytes_per_s()) / 16e9 for generation in (3, 4, 5, 6)}
    gen3, edr = pcie(3), infiniband("EDR", payload_bytes=4032.0, header_bytes=64.0)
    per_ns, payload = float(gen3.wire_bytes_per_s()) * 1e-9, float(gen3.max_payload_bytes)
    tlp = (float(gen3.tlp_overhead_bytes) + payload) / per_ns
    dllp, tlps, message = float(gen3.dllp_bytes) / per_ns, 4096 / payload, 4096.0
    total = tlps * tlp + tlps / float(gen3.tlps_per_dllp) * dllp
    nvlink = float(load_store("NVLink 4").wire_bytes_per_s()) / 1e9
    hopper = accelerator("h100_sxm")
    given = "not determined: a rate as stated, no measurement"
    rows = [
        ("U001 PCIe 3.0 a lane, GB/s", 1.0, lane[3], 0.02, "derived"),
        ("U002 PCIe 4.0 a lane, GB/s", 2.0, lane[4], 0.02, "derived"),
        ("U003 PCIe 5.0 a lane, GB/s", 4.0, lane[5], 0.02, "derived"),
        ("U011 PCIe 5.0 a lane, GB/s", 3.9, lane[5], 0.02, "derived"),
        ("U012 PCIe 6.0 a lane, GB/s", 7.5, lane[6], 0.02, "derived"),
        ("U004 NVLink Gen5 a lane, GB/s", 4.0, None, None, given),
        ("U005 NVLink Gen6 a lane, GB/s", 7.5, None, None, given),
        ("U006 NVLink Gen7 a lane, GB/s", 15.1, None, None, given),
        ("U007 Hopper, TFLOP/s (the text says FP32; it is the dense BF16 peak of accelerator=h100_sxm)", 989.4,
         hopper["peak_flops_per_s"]["bf16"] / 1e12, 1e-3, "published"),
        ("U008 Grace Hopper HBM3e, GB", 144, None, None, "not determined: gh200 here is that of 96 GiB"),
        ("U009 Gaudi, TFLOP/s", 229, None, None, "not determined: a data sheet's figure"),
        ("U010 Gaudi HBM, GB", 128, None, None, "not determined: a data sheet's figure"),
        ("U013 NVLink 4, both directions, GB/s", 900, 2 * nvlink, 0.0, "published"),
        ("U020 PCIe 3.0 a lane, Gbit/s", 8, float(gen3.transfers_per_s) / 1e9, 0.0, "published"),
        ("U021 lanes to the card", 16, float(gen3.lanes), 0.0, "published"),
        ("U022 PCIe to the card before encoding, Gbit/s", 128, float(gen3.lanes * gen3.transfers_per_s) / 1e9, 0.0,
         "derived"),
        ("U023 encoding", 128 / 130, float(gen3.encoding_ratio), 1e-9, "published"),
        ("U024 PCIe after encoding, Gbit/s", 126, 8 * per_ns, 2e-3, "derived"),
        ("U025 maximum payload, bytes", 128, payload, 0.0, "published"),
        ("U026 BytesPerNs of Gen3 x16 (value: lanes x rate x encoding / 8)", 16 * 8 * 128 / 130 / 8, per_ns, 1e-9,
         "published"),
        ("U027 TLPTime, ns (value: 152 bytes over BytesPerNs)", 152 / (16 * 128 / 130), tlp, 1e-9, "derived"),
        ("U028 DLLPTime, ns (value: 8 bytes over BytesPerNs)", 8 / (16 * 128 / 130), dllp, 1e-9, "derived"),
        ("U029 NumberTLPs of 4 KiB", 32, tlps, 0.0, "published"),
        ("U030 NumberACKs of 4 KiB, one for three", 32 / 3, tlps / float(gen3.tlps_per_dllp), 1e-9, "derived"),
        ("U031 LatencyTime of 4 KiB, ns: equation 1 (paper) against the protocol's payload rate (model)", total,
         message * float(gen3.seconds_per_byte()) * 1e9, 1e-9, "published"),
        ("U016 InfiniBand header, bytes (section 3.1)", 64, float(edr.header_bytes), 0.0, "published"),
        ("U017 InfiniBand payload, bytes (section 3.1)", 4032, float(edr.payload_bytes), 0.0, "published"),
    ]  # fmt: skip
    return [Claim(NAME, text, paper, model, bar, standing) for text, paper, model, bar, standing in rows]


def accelerator(name: str) -> dict[str, Any]:
    """The configuration of an accelerator."""
    return plain(compose([f"accelerator={name}"]))["cluster"]["accelerator"]


def cluster_claims() -> list[Claim]:
    """What the cluster is made of; the two headers that its text gives cannot be told apart by its tables."""
    edr = infiniband("EDR")
    whole = float(edr.payload_bytes + edr.header_bytes)
    machine = "not determined: an inventory, nothing in the tables depends on it"
    rows = [
        ("U014 EDR port, Gbit/s", 100, float(edr.bits_per_s) / 1e9, 0.0, "published"),
        ("U015 InfiniBand MTU, bytes", 4096, whole, 0.0, "published"),
        ("U018 memory of a node, GB", 192, None, None, machine),
        ("U019 CPUs of a node", 2, None, None, machine),
        ("U037 sizes of messages: largest over smallest", 4194304 / 128, sizes()[-1]
         / sizes()[0], 0.0, "published"),
        ("U039 packet header, bytes (section 4.1; 64 in section 3.1)", 60, float(edr.header_bytes), 0.0, "published"),
        ("U040 packet payload, bytes (section 4.1; 4032 in section 3.1)", 4036, float(edr.payload_bytes), 0.0,
         "published"),
        ("U041 PCIe, GiB/s as printed: GB/s before encoding", 16, float(pcie(3).lanes * pcie(3).transfers_per_s) / 8e9,
         0.0, "derived"),
        ("U042 InfiniBand, GiB/s as printed: GB/s of EDR", 12.5, float(edr.wire_bytes_per_s()) / 1e9, 0.0, "derived"),
    ]  # fmt: skip
    return [Claim(NAME, text, paper, model, bar, standing) for text, paper, model, bar, standing in rows]


def sizes() -> np.ndarray:
    """Of the messages of both tables."""
    return bandwidth_table()["msg_size_bytes"].to_numpy(dtype=float)


def measured_claims() -> list[Claim]:
    """The largest rate, from the packets alone, and where it is first reached."""
    wire = 1e-9 / float(infiniband("EDR").seconds_per_byte())
    text = "U038 largest rate of ib_read, GB/s (EDR less headers; the rest is the card's)"
    model = windows()["ib_read"]
    first = sizes()[np.argmax(throughput(model, sizes()) >= 0.99 * 1e-9 * float(model.bandwidth_bytes_per_s))]
    reason = "not determined: the fitted curve is within 1 % of its end from here; the table has a step at 128 KiB"
    return [
        Claim(NAME, text, 12.1, wire, 0.03, "published"),
        Claim(NAME, "U038 size at which it is first reached, bytes", 131072, float(first), None, reason),
    ]


def figures() -> dict[str, Figure]:
    """Latencies and throughputs: measured as dots, modelled as lines with what holds nine rows of ten."""
    figure, ((left, right),) = panels(3.4, 1, 2)
    fine, colours = np.geomspace(128, 2**22, 200), dict(zip(models(), (BLUE, ORANGE, GREEN, PURPLE), strict=True))
    middles = []
    for axes, table, unit, result, value in (
        (left, latency_table(), "us", models(), latency_us),
        (right, bandwidth_table(), "GB_per_s", windows(), throughput),
    ):
        ends, errors = [], []
        for test, model in result.items():
            measured, line = table[f"{test}_{unit}"].to_numpy(dtype=float), np.asarray(value(model, fine))
            apart = np.abs(np.asarray(value(model, sizes())) / measured - 1)
            most = float(np.quantile(apart, 0.9))
            axes.fill_between(fine, line / (1 + most), line * (1 + most), color=colours[test], alpha=0.18, linewidth=0)
            axes.plot(sizes(), measured, "o", color=colours[test], markersize=2.6)
            axes.plot(fine, line, color=colours[test], linewidth=1)
            ends.append(Label(fine[-1], float(line[-1]), f"{test} ±{most:.0%}", colours[test]))
            errors.append(apart)
        axes.set(xscale="log", xlabel="message, bytes", yscale="log" if axes is left else "linear")
        plain_ticks(axes, "x", (1e3, 1e4, 1e5, 1e6), ("1 k", "10 k", "100 k", "1 M"))
        name_ends(axes, ends)
        middles.append(float(np.median(np.concatenate(errors))))
    plain_ticks(left, "y", (1, 3, 10, 30, 100, 300))
    left.set_title("latency, us")
    right.set_title("throughput, GB/s")
    headline(figure, f"Three stages and a window give what was measured over PCIe and InfiniBand: half the latencies "
             f"within {middles[0]:.1%}, half the rates within {middles[1]:.1%} (bands: nine rows of ten)")  # fmt: skip
    return {"Measured and modelled": figure}
