"""Photonic links: the worked budget, published energies, receivers, and where each limit binds."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from codesign import get_path, replace, scenario_from_config
from codesign.core import walk
from codesign.evidence.reproduction import Claim
from codesign.model.hardware import (
    ElectroAbsorptionModulator,
    MachZehnderModulator,
    PhotonicLink,
    PhotonicReceiver,
    dbm,
    quality_of,
)
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks

NAME = "photonic_link"
KINDS = {  # of claims whose standing alone does not say it
    "note": r"^worked case|limit is just used up",
    "transcription": r"CHK-09|LUM-13\b",
}
PJ = 1e12
LIGHT_M_PER_S, GROUP_INDEX, RADIUS_M = 299792458.0, 4.2, 5e-6  # a silicon ring as small as rings are


def port() -> PhotonicLink:
    """The worked case: `fabric=lightpath_optics`."""
    return scenario_from_config("fabric=lightpath_optics").cluster.network["scale_up"].fabric.port


def with_modulator(base: PhotonicLink, modulator) -> PhotonicLink:
    """The same port written by another device."""
    return PhotonicLink(
        **({name: getattr(base, name) for name in base.__dataclass_fields__} | {"modulator": modulator})
    )


def worked(base: PhotonicLink) -> list[Claim]:
    """The numbers of the worked case."""
    rate = float(base.bits_per_s)
    one = float(base.bandwidth_bytes_per_s() / base.waveguides)
    lanes, dense = float(np.ceil(300e9 / (rate / 8))), float(base.density_bits_per_s_per_m()) * 1e-15
    loss = "worked case: loss, dB (crosstalk fitted; 9.1 dB of it is not itemised)"
    return [
        Claim(NAME, loss, 17.7, float(base.loss_db()), 0.01, "fitted 1 on 1"),
        Claim(NAME, "worked case: laser, pJ/bit (about 1.1)", 1.1, float(base.laser_j_per_bit()) * PJ, 0.1, "derived"),
        Claim(NAME, "worked case: Gb/s a fiber", 512.0, one * 8e-9, 1e-6, "derived"),
        Claim(NAME, "worked case: Tb/s per mm of edge at 127 um", 4.0, dense, 0.01, "derived"),
        Claim(NAME, "worked case: wavelengths for 300 GB/s", 75.0, lanes, 0.0, "derived"),
        Claim(NAME, "worked case: fibers for 300 GB/s", 5.0, float(np.ceil(300e9 / one)), 0.0, "derived"),
    ]


def energies(base: PhotonicLink) -> list[Claim]:
    """Links of each kind against what is published for it."""

    def within(text: str, value: float, low: float, high: float) -> Claim:
        outside = max(0.0, low / value - 1, value / high - 1)
        return Claim(NAME, f"{text}, pJ/bit, within {low} to {high}", None, value, 0.0, "derived", error=outside)

    absorbing = replace(with_modulator(base, ElectroAbsorptionModulator()), {"bits_per_s": 56e9, "wavelengths": 8.0})
    given = 1e-4 * 10 ** (17.7 / 10) / 0.15 / 56e9 * PJ
    interferometer = with_modulator(base, MachZehnderModulator())
    text = "electro-absorption link: laser, pJ/bit, of -10 dBm at 56 Gb/s over the worked loss"
    claims = [
        within("ring WDM port", float(base.energy_j_per_bit()) * PJ, 0.75, 3.1),
        within("Mach-Zehnder port", float(interferometer.energy_j_per_bit()) * PJ, 0.75, 3.1),
        within("electro-absorption port at 56 Gb/s", float(absorbing.energy_j_per_bit()) * PJ, 0.75, 3.1),
        Claim(NAME, text, 0.7, given, 0.1, "derived"),
    ]
    wide = replace(base, {"wavelengths": 0.75e12 / 32e9})
    text = "ring WDM link at 0.75 Tb/s, pJ/bit (other electronics: 65 nm)"
    claims.append(Claim(NAME, text, 1.9, float(wide.energy_j_per_bit()) * PJ, 0.5, "derived"))
    spectral = LIGHT_M_PER_S / (GROUP_INDEX * 2 * np.pi * RADIUS_M)
    text = "wavelengths in the spectral range of a 5 um ring, 50 GHz apart (45 of 45 Gb/s are published)"
    claims.append(Claim(NAME, text, 45.0, float(spectral / 50e9), 0.05, "derived"))
    return claims


def receivers() -> list[Claim]:
    """Sensitivity at a penalty of 6 dB, and the penalty that each measured receiver asks for."""
    measured = {14e9: -13.0, 25e9: -9.7, 56e9: -10.0}
    claims, asked = [], []
    for rate, level in measured.items():
        result = float(PhotonicReceiver().sensitivity_w(jnp.asarray(rate)))
        asked.append(level - float(dbm(jnp.asarray(result))) + 6.0)
        text = f"receiver at {rate / 1e9:g} Gb/s ({level:g} dBm): uW of light at a penalty of 6 dB (bar: 2 dB)"
        claims.append(Claim(NAME, text, 1e3 * 10 ** (level / 10), 1e6 * result, 10**0.2 - 1, "fitted 1 on 3"))
    text = "penalty that the three receivers ask for on average, dB (about 6)"
    return [*claims, Claim(NAME, text, 6.0, float(np.mean(asked)), 0.1, "fitted 1 on 3")]


RISES = (
    "path.stages",
    "path.crossings",
    "path.length_m",
    "path.couplers",
    "path.margin_db",
    "bits_per_s",
    "receiver.quality",
)


def shape(base: PhotonicLink) -> list[Claim]:
    """Monotone, with true slopes, and bounded where it should be."""

    def light(point):
        return jnp.log(replace(base, point).laser_w())

    start = {path: value for path, _, value in walk(base) if float(value) > 0}
    factors = np.linspace(0.5, 2.0, 31)
    falls = 0
    for path in RISES:
        curve = jax.vmap(lambda f, p=path: light(start | {p: start[p] * f}))(jnp.asarray(factors))
        falls += int((np.diff(np.asarray(curve)) <= 0).sum())
    text = f"laser power falls anywhere as loss, rate or Q rise ({len(RISES)} numbers, factor 4)"
    claims = [Claim(NAME, text, None, float(falls), 0.0, "derived", error=float(falls))]
    ratios = [
        float(replace(base, {"receiver.quality": quality_of(jnp.asarray(r))}).laser_w()) for r in (1e-9, 1e-12, 1e-15)
    ]
    wrong = float((np.diff(ratios) <= 0).sum())
    claims.append(
        Claim(NAME, "laser power falls as fewer errors are asked for", None, wrong, 0.0, "derived", error=wrong)
    )
    slopes, worst, step = jax.grad(light)(start), 0.0, 1e-4
    for path in RISES:
        up, down = (float(light(start | {path: start[path] * (1 + s)})) for s in (step, -step))
        worst = max(worst, abs(float(slopes[path] * start[path]) / ((up - down) / (2 * step)) - 1))
    claims.append(
        Claim(NAME, "largest difference of a slope from finite differences", None, worst, 1e-5, "derived", error=worst)
    )
    for path, limit, at in (("wavelengths", "band", 32.0), ("waveguides", "edge", 25e-3 / 127e-6)):
        share = replace(base, {path: at}).limits()[limit]
        text = f"{limit} limit is just used up at {at:.1f} {path}"
        claims.append(Claim(NAME, text, 1.0, float(share), 1e-6, "derived"))
    most = power_bound(base)
    share = float(replace(base, {"path.stages": most}).limits()["waveguide_power"])
    text = f"waveguide power limit is just used up at {most:.2f} switch stages (found by slope)"
    claims.append(Claim(NAME, text, 1.0, share, 1e-6, "derived"))
    return claims


def power_bound(base: PhotonicLink) -> float:
    """Switch stages at which a waveguide bears no more light: log power is linear in them, one step suffices."""

    def excess(stages):
        return jnp.log(replace(base, {"path.stages": stages}).limits()["waveguide_power"])

    value, slope = jax.value_and_grad(excess)(base.path.stages)
    return float(base.path.stages - value / slope)


def document(base: PhotonicLink) -> list[Claim]:
    """What the LUMORPH document says of its testbed."""
    bits = {10e9: 6.96e-13, 15e9: 6.62e-13, 20e9: 5.60e-14}
    claims = []
    for number, (rate, ratio) in zip((9, 10, 11), bits.items(), strict=True):
        seconds = 3 / ratio / rate
        reason = f"falls as the rate rises; as a bound (95 %) of no error seen it is {seconds:.0f} s of bits"
        text = f"LUM-{number:02d}, CHK-08: bit error ratio at {rate / 1e9:g} Gb/s"
        claims.append(Claim(NAME, text, ratio, None, None, f"not determined: {reason}"))
    demonstrated = replace(base, {"waveguides": 1.0, "bits_per_s": 20e9})
    bus = float(demonstrated.bandwidth_bytes_per_s())
    claims += [
        Claim(NAME, "CHK-09: GB/s of one bus as demonstrated (16 x 20 Gb/s)", 40.0, bus * 1e-9, 1e-6, "derived"),
        Claim(NAME, "CHK-09: parallel buses for 300 GB/s", 7.5, 300e9 / bus, 1e-6, "derived"),
        Claim(NAME, "CHK-09: Gb/s per wavelength for 300 GB/s on one bus", 150.0, 20.0 * 300e9 / bus, 1e-6, "derived"),
    ]
    fits = float(replace(base, {"pitch_m": 4e-6}).edge_m / 4e-6)
    text = "LUM-13: waveguides along 25 mm of tile at 4 um (at least 1,000; error: what is missing)"
    claims.append(Claim(NAME, text, 1000.0, fits, 0.0, "derived", error=max(0.0, 1 - fits / 1000)))
    states = {5: (3, "outputs of a switch"), 7: (28, "Gb/s of the FPGA"), 8: (4, "tiles in the loop")}
    for number, (value, what) in states.items():
        reason = "describes the testbed; no model predicts it"
        claims.append(Claim(NAME, f"LUM-{number:02d}: {what}", float(value), None, None, f"not determined: {reason}"))
    return claims


def claims() -> list[Claim]:
    """All of it."""
    base = port()
    return [*worked(base), *energies(base), *receivers(), *shape(base), *document(base)]


def tables() -> dict[str, pd.DataFrame]:
    """The budget term by term, the energy term by term, and other links beside it."""
    base = port()
    loss = {name: float(value) for name, value in base.path.items_db().items()}
    loss |= {
        "modulator and rings": float(base.modulator.loss_db(base.wavelengths)),
        "crosstalk": float(base.crosstalk_db()),
    }
    energy = {
        "laser": base.laser_j_per_bit(), "modulator": base.modulator.drive_j_per_bit(),
        "receiver": base.receiver.energy_j_per_bit, "electronics": base.electronics_j_per_bit,
        "heaters and switch": base.holding_j_per_bit(),
    }  # fmt: skip
    links = [
        ("this port (rings, 32 Gb/s)", float(base.energy_j_per_bit()) * PJ), ("micro-ring WDM, 0.75 Tb/s", 1.9),
        ("electro-absorption", 3.1), ("VCSEL, co-packaged", 0.75), ("XSR 113G PAM4", 1.1), ("NVLink-C2C", 1.3),
        ("112G SerDes", 5.5),
        ("UCIe", 0.5), ("linear pluggable", 11.0),
        ("pluggable with half a DSP", 12.5), ("pluggable with DSP", 18.0),
    ]  # fmt: skip
    return {
        "Link budget": pd.DataFrame({"term": list(loss), "dB": list(loss.values())}),
        "Energy": pd.DataFrame({"term": list(energy), "pJ/bit": [float(v) * PJ for v in energy.values()]}),
        "Other links": pd.DataFrame(links, columns=["link", "pJ/bit"]),
    }


def figures() -> dict:
    """Energy over rate for several losses, and what each limit leaves of wavelengths and rate."""
    base, rates = port(), jnp.geomspace(8e9, 112e9, 60)
    figure, ((left, right),) = panels(3.5, 1, 2)
    stages, ends, least = get_path(base, "path.stages"), [], {}
    speeds = np.asarray(rates) / 1e9
    left.axhspan(0.75, 3.1, color="0.93", linewidth=0)
    beside(left, "published links", speeds[0], 0.8, GREY, (3, 2))
    for factor, colour in zip((0.5, 1.0, 2.0), (BLUE, ORANGE, GREEN), strict=True):
        changed = replace(base, {"path.stages": stages * factor})
        curve = jax.vmap(lambda r, c=changed: replace(c, {"bits_per_s": r}).energy_j_per_bit())(rates) * PJ
        count = float(stages) * factor
        left.plot(speeds, curve, color=colour, linewidth=1.4)
        ends.append(Label(speeds[-1], float(curve[-1]), f"{count:g} stages, {float(changed.loss_db()):.1f} dB", colour))
        least[count] = (float(curve.min()), float(speeds[int(np.argmin(curve))]))
    left.set(xscale="log", yscale="log", xlabel="Gb/s per wavelength", title="pJ/bit")
    counts = jnp.geomspace(4, 64, 60)

    def shares(count, rate):
        return jnp.stack(list(replace(base, {"wavelengths": count, "bits_per_s": rate}).limits().values()))

    grid = np.asarray(jax.vmap(lambda count: jax.vmap(lambda rate: shares(count, rate))(rates))(counts))
    for index, name in enumerate(base.limits()):
        if name != "edge":
            colour = BLUE if name == "band" else ORANGE
            right.contourf(speeds, counts, grid[:, :, index], levels=[1.0, np.inf], colors=[colour], alpha=0.18)
            right.contour(speeds, counts, grid[:, :, index], levels=[1.0], colors=[colour], linewidths=1.3)
    right.set(xscale="log", yscale="log", xlabel="Gb/s per wavelength", title="wavelengths per waveguide")
    beside(right, "beyond the band", 9, 44, BLUE, (0.1, 0))
    beside(right, "more light than\na waveguide takes", 36, 24, ORANGE, (0.1, 0))
    beside(right, "can be built", 9, 7, "0.2", (0.1, 0))
    for axes, places in ((left, (1, 2, 5)), (right, (5, 10, 20, 50))):
        plain_ticks(axes, "x", (10, 20, 50, 100))
        plain_ticks(axes, "y", places)
    name_ends(left, ends)
    own = least[float(stages)]
    headline(figure, f"A light path of {float(stages):g} switch stages is thriftiest at {own[1]:.0f} Gb/s a "
             f"wavelength, "
             f""
             f"{own[0]:.1f} pJ/bit, within what is published; twice the stages cost "
             f"{least[2 * float(stages)][0]:.1f}")  # fmt: skip
    return {"Energy and limits": figure}
