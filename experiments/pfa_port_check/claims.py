"""What the appliance's gains become when its ports carry what they can carry."""

import functools

import pandas as pd

from _lib.celestisim_inference import PORTS, appliance_pool, compare, reference
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREY, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks

NAME = "pfa_port_check"
KINDS = {  # of claims whose standing alone does not say it
    "transcription": r"PFA-0(01|02|09|16|19|22|30|31|32|71|72)\b|^consistency",
}
READINGS = {"document": (16, False), "16 ports": (16, True), "8 ports": (8, True), "1 port": (1, True)}
EXPECTED = {"document": (3.66, 1.40), "16 ports": (2.53, 0.79), "8 ports": (1.56, 0.41), "1 port": (0.44, 0.05)}
SWITCHING, TERABITS, STACK_GB, STACKS, MODULES, DDR_TB = 115.0, 7.2, 36.0, 2.0, 16.0, 2.0


@functools.cache
def gains() -> dict[str, pd.DataFrame]:
    """Reading of the ports -> comparison of 405B."""
    return {
        name: compare(reference(), "405B", pool=appliance_pool(ports, bound=bound))
        for name, (ports, bound) in READINGS.items()
    }


def claims() -> list[Claim]:
    """The flag, gains under each reading, and the arithmetic of the appliance's own figures."""
    pool, result = appliance_pool(), []
    result.append(
        Claim(NAME, "consistency: 26.8 TB/s to one accelerator over what all 16 ports carry (must not exceed 1)", 1.0,
              float(pool.port_load()), None, "published: contradicts the document's own ports")
    )  # fmt: skip
    for name, frame in gains().items():
        for column, paper in zip(("throughput_gain", "latency_gain"), EXPECTED[name], strict=True):
            words = column.replace("_", " ")
            stated = paper if name == "document" else None
            standing = "fitted 7 on 6" if stated else "derived: no figure of the document"
            text = f"{name}: largest {words} of 405B"
            result.append(Claim(NAME, text, stated, float(frame[column].max()), 0.05 if stated else None, standing))
    return [*result, *appliance()]


def appliance() -> list[Claim]:
    """Figures of sections 3.3, 3.4 and 9 that follow from each other, and those that nothing else determines."""
    rate = 8 * 1e-12 / float(appliance_pool().port.beta_s_per_byte)
    follows = {
        "PFA-001: shared memory, TB (modules times DDR5 of a module)": (32.0, MODULES * DDR_TB, 0.0),
        "PFA-002: all-to-all switching, Tb/s (ports times port rate)": (115.0, PORTS * TERABITS, 0.005),
        "PFA-009: radix (switching over port rate)": (16.0, SWITCHING / TERABITS, 0.005),
        "PFA-016: accelerators on one appliance (switching over port rate)": (16.0, SWITCHING / TERABITS, 0.005),
        "PFA-019: modules (switching over port rate)": (16.0, SWITCHING / TERABITS, 0.005),
        "PFA-022: port of a module, Tb/s (switching over modules)": (7.2, SWITCHING / MODULES, 0.005),
        "PFA-071: link, first generation, Tb/s (switching over modules)": (7.2, SWITCHING / MODULES, 0.005),
        "PFA-072: link, next generation, Tb/s (wavelengths and levels doubled)": (28.8, rate * 2 * 2, 1e-9),
        "PFA-030: memory with one module chiplet, TB": (2.0, 1 * DDR_TB, 0.0),
        "PFA-031: memory with two module chiplets, TB": (4.0, 2 * DDR_TB, 0.0),
        "PFA-032: memory with three module chiplets, TB": (6.0, 3 * DDR_TB, 0.0),
    }
    result = [
        Claim(NAME, text, paper, model, bar, "derived: arithmetic of the document's own figures")
        for text, (paper, model, bar) in follows.items()
    ]
    alone = {
        "PFA-015: line rate, Gb/s": 56.0,
        "PFA-017: HBM3E stacks of a module": STACKS,
        "PFA-018: switch in a module, Tb/s": 8.0,
        "PFA-020: stack of HBM3E, GB": STACK_GB,
        "PFA-021: DDR5 of a module, TB": DDR_TB,
        "PFA-023: smaller cluster, accelerators": 8.0,
        "PFA-024: larger cluster, accelerators": 16.0,
        "PFA-025: smaller tiered cluster, accelerators": 128.0,
        "PFA-026: larger tiered cluster, accelerators": 256.0,
        "PFA-068: ports of the next generation": 64.0,
        "PFA-069: wavelengths, first generation": 4.0,
        "PFA-070: wavelengths, next generation": 8.0,
    }
    reason = "not determined: a statement of the maker that nothing else in the document fixes"
    return result + [Claim(NAME, text, paper, None, None, reason) for text, paper in alone.items()]


def tables() -> dict[str, pd.DataFrame]:
    """Gains at every pair of lengths under every reading."""
    return {"Gains by reading": pd.concat([frame.assign(reading=name) for name, frame in gains().items()])}


def figures() -> dict:
    """Gain against the bandwidth that reaches the accelerator."""
    figure, ((axes,),) = panels(3.2)
    rate = [float(appliance_pool(p, bound=bound).bandwidth()) / 1e12 for p, bound in READINGS.values()]
    order = sorted(range(len(rate)), key=lambda place: rate[place])
    axes.set(xscale="log", yscale="log", xlabel="bandwidth to the accelerator, TB/s",
             ylabel="largest gain over DGX-H100")  # fmt: skip
    values = {}
    for column, colour in (("throughput_gain", BLUE), ("latency_gain", ORANGE)):
        result = [float(frame[column].max()) for frame in gains().values()]
        values[column] = [result[place] for place in order]
        axes.plot([rate[place] for place in order], values[column], "o-", color=colour, linewidth=1.4, markersize=4.5)
        for place in order[:-1]:
            beside(axes, f"{result[place]:.2g}", rate[place], result[place], colour, (-4, 5))
    axes.axhline(1.0, color="0.4", linewidth=1)
    axes.axvline(PORTS * 0.9, color=GREY, linestyle=":")
    beside(axes, f"all {PORTS:g} ports", PORTS * 0.9, 0.06, GREY, (-4, 0))
    plain_ticks(axes, "x", (1, 2, 5, 10, 20))
    plain_ticks(axes, "y", (0.1, 0.2, 0.5, 1, 2, 4))
    ends = [Label(max(rate), result[-1], f"{column.replace('_gain', '')}: {result[-1]:.2f}", colour)
            for (column, result), colour in zip(values.items(), (BLUE, ORANGE), strict=True)]  # fmt: skip
    name_ends(axes, ends)
    one, every = (values["throughput_gain"][at] for at in (0, -2))
    headline(figure, f"The stated gains need {max(rate):.1f} TB/s at one accelerator, more than its {PORTS:g} ports "
             f"carry: "
             f"through all of them throughput gains {every:.1f} and latency loses, through one port both lose "
             f"({one:.2g})")  # fmt: skip
    return {"Gain by bandwidth": figure}
