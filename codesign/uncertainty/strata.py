"""Known errors that a design's numbers rest on: strata of cross-validation, as the page tells them."""

from typing import Any

import numpy as np

from ..model.scenario import Scenario
from .draws import COLLECTIVES, KERNELS, among, format_of, regime, source_names
from .spreads import LEARNED, MEASURED, NEW, PHYSICS, RELATIVE, Spread, find

__all__ = ["strata_of"]

ANY = "any"
IN_WORDS = {
    MEASURED: "measured on this device", RELATIVE: "measured on its generation", NEW: "measured on other devices",
}  # fmt: skip


def strata_of(scenario: Scenario) -> list[dict[str, Any]]:
    """A row for each stratum: what was predicted, on what it was measured, rows, and the 90 % interval of its error.

    `low` and `high` are measured / predicted - 1; classes of kernels and collectives that share errors are one row.
    """
    cluster, job = scenario.cluster, scenario.workload
    own, model = cluster.accelerator, LEARNED if cluster.accelerator.kernel_correction is not None else PHYSICS
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def told(what: str, found: Spread | None) -> None:
        if found is not None and (found.kind, found.name, found.regime) not in rows:
            low, high = np.expm1(found.interval())
            rows[found.kind, found.name, found.regime] = {
                "what": what.replace("_", " "),
                "regime": "other published jobs" if found.kind == "source" else IN_WORDS[found.regime],
                "rows": found.rows, "low": float(low), "high": float(high),
            }  # fmt: skip

    for name in dict.fromkeys(source_names(scenario)):
        told(f"whole jobs: {name}", find("source", (name,), PHYSICS, NEW))
    told("power", find("source", ("power",), PHYSICS, NEW))
    for kind in KERNELS:
        number_format = format_of(job, kind)
        names = (f"{kind} {number_format}", kind, ANY)
        told(f"kernels: {kind}", find("kernel", names, model, regime(cluster, kind, number_format)))
    wired = among(own, find("collective", (ANY,), PHYSICS, MEASURED))
    for operation in COLLECTIVES:
        told(f"collectives: {operation}", find("collective", (operation, ANY), PHYSICS, wired))
    return list(rows.values())
