"""`codesign verify` of a front: what its files say of it must agree, then it is checked."""

from typing import Any

import numpy as np
import pandas as pd

from ..search import Certificate
from ..search.front.front_evidence import STEPS
from ..verification import Answer, Asked, AttackEffort, verify_front, verify_unproven
from ..verification.attacked import Told
from ..verification.whole_check import VALUE

WHOLE = 1e-3  # of a step: what float64 leaves of the last digits of a bound


def is_bounded(claimed: Certificate) -> bool:
    """True if a bound is claimed of any design of a front."""
    return claimed.front is not None and any(one.bound is not None for one in claimed.front.points)


def answer_of_front(
    asked: Asked,
    shown: pd.DataFrame,
    claimed: dict[str, Any],
    stored: tuple[dict[str, Any], dict[str, Any]] | None,
    attack: int | AttackEffort,
    seed: int,
    watch: Told,
) -> Answer:
    """Compare what the run says of its front in several files, then check it.

    Args:
        asked: the study.
        shown: the frame of its designs.
        claimed: what the summary says of the front.
        stored: its certificate, if it has one.
        attack, seed, watch: as of any verification.
    """
    if stored is None:
        names = [*asked.space.plan, *asked.space.hardware]
        designs = {name: shown[f"var.{name}"].to_numpy(dtype=float) for name in names}
        return verify_unproven(asked, designs, shown[list(claimed["metrics"])].to_numpy(dtype=float))
    header, tables = stored
    told = header.get("front")
    if told != claimed:
        names = [name for name in claimed if not isinstance(told, dict) or told.get(name) != claimed[name]]
        return Answer(False, f"not verified: summary.json and certificate.json differ in the front's {names[0]}")
    bounds = np.asarray(tables.get("statements", {}).get("bound", ()), dtype=float) * STEPS
    if not np.allclose(bounds[np.isfinite(bounds)] % 1.0 * (1 - bounds[np.isfinite(bounds)] % 1.0), 0.0, atol=1e-4):
        return Answer(
            False, f"not verified: a statement's bound is no whole number of {1 / STEPS:g}: no search tells so"
        )
    answer = verify_front(asked, header, tables, attack, seed, watch)
    if answer.verified and not _same_designs(shown, tables["designs"], told):
        return Answer(False, "not verified: designs.parquet has other designs than the certificate", answer.checks)
    return answer


def _same_designs(shown: pd.DataFrame, kept: dict[str, Any], told: dict[str, Any]) -> bool:
    """True if the frame, which reports show, has the designs of the certificate and the same metrics of them."""
    variables = [name for name in kept if name != "statement"]
    metrics = told["metrics"]
    if len(shown) != len(told["points"]):
        return False
    one = np.array([kept[name] for name in variables] + [[p["values"][m] for p in told["points"]] for m in metrics])
    other = np.array([shown[name] for name in [*(f"var.{name}" for name in variables), *metrics]], dtype=float)
    one, other = (table[:, np.lexsort(table[: len(variables)])] for table in (one, other))
    return bool(np.allclose(one, other, rtol=VALUE, atol=0))
