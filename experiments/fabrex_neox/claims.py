"""GPT-NeoX training on 16 accelerators: what its TFLOP/s count, and what faster rings buy."""

import numpy as np
from scipy.optimize import least_squares

from codesign.reproduce import Claim, experiments_folder, load

NAME = "fabrex_neox"
KINDS = {  # of claims whose standing alone does not say it
    "transcription": r"printed change of TFLOP/s",
    "fitted": r"TFLOP/s a GPU from samples",
    "note": r"^constant:",
}
GPUS, SEQUENCE, VOCABULARY = 16, 2048, 50304
MODELS = {"1.3B": (24, 2048), "13B": (40, 5120)}  # layers, hidden
SAMPLES = {  # samples/s with RCCL 6.1 and with optimised rings
    ("1.3B", 1): (78.83, 88.42),
    ("1.3B", 3): (85.52, 88.72),
    ("13B", 1): (12.61, 14.33),
    ("13B", 3): (15.80, 16.24),
}
TFLOPS = {
    ("1.3B", 1): (120.0, 134.6),
    ("1.3B", 3): (130.6, 135.0),
    ("13B", 1): (175.8, 199.8),
    ("13B", 3): (220.3, 226.5),
}
CHANGE = {("1.3B", 1): 10.81, ("1.3B", 3): 3.27, ("13B", 1): 12.01, ("13B", 3): 2.72}  # % of the optimised value
TFLOPS_CHANGE = {("1.3B", 1): 10.85, ("1.3B", 3): 3.26, ("13B", 1): 12.01, ("13B", 3): 2.74}
CORRECTED = SAMPLES | {("1.3B", 3): (85.82, 88.72)}  # 85.52 disagrees with its own TFLOP/s and its printed change
RINGS = ("default", "optimised")


def flops(model: str) -> float:
    """Hardware FLOPs of a sample, activations recomputed: 96 s L h^2 (1 + s / 6h + V / 16 L h).

    Source: [narayanan2021], equation 3 with one sample.
    """
    layers, hidden = MODELS[model]
    return 96 * SEQUENCE * layers * hidden**2 * (1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * layers * hidden))


def parameter_bytes(model: str) -> float:
    """Weights in 16 bits, input and output embeddings apart."""
    layers, hidden = MODELS[model]
    return 2.0 * (12 * layers * hidden**2 + 2 * VOCABULARY * hidden)


def measured_rings() -> dict[str, tuple[float, float]]:
    """Rings -> GB/s of (reduce-scatter, all-gather), from the document's table of rings."""
    table = load(experiments_folder() / "fabrex_rings").MEASURED
    return {name: (table["reduce_scatter"][i], table["all_gather"][i]) for i, name in enumerate(RINGS)}


def modelled_rings() -> dict[str, tuple[float, float]]:
    """The same from the graph."""
    return {name: (rate, rate) for name, rate in load(experiments_folder() / "fabrex_rings").rates().items()}


def seconds_per_byte(stage: int, rates: tuple[float, float]) -> float:
    """ZeRO 1: reduce-scatter of gradients and all-gather of weights; ZeRO 3: the weights are gathered twice."""
    scatter, gather = rates
    return (GPUS - 1) / GPUS * (1 / scatter + (1 if stage == 1 else 2) / gather) * 1e-9


def samples_per_s(logs: np.ndarray, rings: dict[str, tuple[float, float]]) -> dict[tuple[str, int], tuple[float, ...]]:
    """1 / (compute + exposed communication), seconds of a sample on all accelerators.

    Args:
        logs: logarithms of the compute rates of both models (TFLOP/s), of what ZeRO 3 adds to compute, and of the
            share of communication that is exposed with ZeRO 1 and with ZeRO 3, per sample and accelerator.
        rings: rates of the collectives.
    """
    small, large, slower, first, third = np.exp(logs)
    rate, result = {"1.3B": small, "13B": large}, {}
    for model, stage in SAMPLES:
        compute = flops(model) * (1.0 if stage == 1 else slower) / (GPUS * rate[model] * 1e12)
        exposed = (first if stage == 1 else third) * parameter_bytes(model) / GPUS
        result[model, stage] = tuple(1 / (compute + exposed * seconds_per_byte(stage, rings[name])) for name in RINGS)
    return result


def fit(rings: dict[str, tuple[float, float]]) -> tuple[np.ndarray, dict[tuple[str, int], tuple[float, ...]]]:
    """Least squared errors of logarithms: (five constants, throughput)."""
    target = np.log([value for values in CORRECTED.values() for value in values])

    def residuals(logs: np.ndarray) -> np.ndarray:
        return np.log([value for values in samples_per_s(logs, rings).values() for value in values]) - target

    found = least_squares(residuals, np.log([170.0, 300.0, 1.2, 0.8, 0.15])).x
    return np.exp(found), samples_per_s(found, rings)


def change(values: tuple[float, ...]) -> float:
    """As this table prints it: per cent of the optimised value."""
    return 100 * (1 - values[0] / values[1])


def claims() -> list[Claim]:
    """TFLOP/s from samples/s, throughput from five constants, changes in points."""
    rows = counted()
    constants, model = fit(measured_rings())
    standing = "fitted 5 on 8"
    for key, values in CORRECTED.items():
        label = f"{key[0]} ZeRO {key[1]}"
        for name, value, predicted in zip(RINGS, values, model[key], strict=True):
            note = ", printed as 85.52" if value != SAMPLES[key][RINGS.index(name)] else ""
            rows.append(Claim(NAME, f"{label} {name} rings: samples/s{note}", value, predicted, 0.02, standing))
        gap = abs(change(model[key]) - CHANGE[key]) / 100
        text = f"{label}: relative change, % of the optimised value (error: points)"
        rows.append(Claim(NAME, text, CHANGE[key], change(model[key]), 0.03, standing, error=gap))
    names = ("1.3B compute, TFLOP/s", "13B compute, TFLOP/s", "compute of ZeRO 3 over ZeRO 1",
             "exposed communication, ZeRO 1, shares x samples a GPU and step", "the same, ZeRO 3")  # fmt: skip
    rows += [
        Claim(NAME, f"constant: {name}", None, float(x), None, standing)
        for name, x in zip(names, constants, strict=True)
    ]
    return rows + derived()


def counted() -> list[Claim]:
    """What the printed TFLOP/s count."""
    rows = []
    for key, rates in TFLOPS.items():
        for name, rate, samples in zip(RINGS, rates, CORRECTED[key], strict=True):
            text = f"{key[0]} ZeRO {key[1]} {name} rings: TFLOP/s a GPU from samples/s"
            rows.append(Claim(NAME, text, rate, flops(key[0]) * samples / GPUS / 1e12, 1e-3, "published"))
        points = abs(change(rates) - TFLOPS_CHANGE[key]) / 100
        text = f"{key[0]} ZeRO {key[1]}: printed change of TFLOP/s, % of the optimised value (error: points)"
        rows.append(Claim(NAME, text, TFLOPS_CHANGE[key], change(rates), 1e-3, "published", error=points))
    misprint = flops("1.3B") * SAMPLES["1.3B", 3][0] / GPUS / 1e12
    reason = "not determined: 85.52 is a misprint of 85.82, which gives 130.6 and the printed change"
    return [
        *rows,
        Claim(NAME, "1.3B ZeRO 3 default rings: TFLOP/s a GPU from the printed 85.52", 130.6, misprint, None, reason),
    ]


def derived() -> list[Claim]:
    """The same with the graph's own rates, and what the text says in numbers."""
    _, model = fit(modelled_rings())
    pairs = [(a, b) for key in CORRECTED for a, b in zip(model[key], CORRECTED[key], strict=True)]
    worst = max(abs(a / b - 1) for a, b in pairs)
    points = max(abs(change(model[key]) - CHANGE[key]) for key in CHANGE) / 100
    volume = 100 * (3 / 2 - 1)
    standing = "fitted 5 on 8, rings from the graph"
    return [
        Claim(NAME, "throughput with the graph's ring rates: largest error", None, worst, 0.02, standing, error=worst),
        Claim(NAME, "relative change with the graph's ring rates: largest error, points", None, points, 0.03, standing,
              error=points),
        Claim(NAME, "GIG-11 communication ZeRO 3 adds, % (three volumes against two)", 40, volume, None, "derived"),
        Claim(NAME, "GIG-12 version of RCCL", 6.1, None, None, "not determined: a software version, no result"),
    ]  # fmt: skip
