"""Question and designs of a mix, checked: the designs shown are sound, on one hardware, and worth what the run says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .derivation import Refuted, StatedClaim
from .goals_blended import CheckedBlend
from .mix_derivation import MixDerivation
from .model_answers import Asked
from .whole_check import VALUE, priced


@dataclass(frozen=True)
class Said:
    """Result of one workload in a run: its design, the goal's value, the best it could have on its own hardware."""

    design: dict[str, float]
    value: float
    own_design: dict[str, float]
    own_best: float | None


@dataclass(frozen=True)
class AskedMix:
    """A mix as its configuration says it.

    workloads: name -> its own study. goal: what the blend is called. relative: goals over each workload's own best.
    """

    workloads: dict[str, Asked]
    goal: str
    how: str
    weights: tuple[float, ...]
    tail: float
    relative: bool

    def blend(self, offset: np.ndarray) -> CheckedBlend:
        """Blend of the goals, less these logs."""
        return CheckedBlend(self.how, np.array(self.weights), self.tail, offset)


def offset_of(asked: AskedMix, said: Sequence[Said], certificate: MixDerivation | None) -> np.ndarray:
    """Logs that the goals are relative to: each workload's own best, which the run shows with its design.

    Raises:
        Refuted: they are not what the run says.
    """
    count = len(asked.workloads)
    stored = None if certificate is None else certificate.offset
    if stored is not None and len(stored) != count:
        raise Refuted(f"the certificate has {len(stored)} workloads, the mix {count}")
    shown = np.zeros(count)
    if said:
        for k, ((name, one), each) in enumerate(zip(asked.workloads.items(), said, strict=True)):
            if each.own_best is None:
                continue
            value = priced(one, each.own_design, f"{name}: its own best design")
            if not abs(value / each.own_best - 1) <= VALUE:
                raise Refuted(f"{name}: its own best design has {one.goal} {value:.9g}, said is {each.own_best:.9g}")
            shown[k] = one.sign * math.log(each.own_best) if asked.relative else 0.0
    elif asked.relative and stored is not None:
        raise Refuted("goals are relative to each workload's own best, but no designs are kept")
    if stored is not None and not np.allclose(stored, shown, rtol=0, atol=VALUE):
        raise Refuted("certificate.json: offset is not the log of what the run says that each workload could have")
    return shown if stored is None else stored


def check_designs(asked: AskedMix, claim: StatedClaim, said: Sequence[Said], blend: CheckedBlend) -> str:
    """Designs that are feasible on common hardware, and worth what is claimed."""
    logs, hardware = list[float](), None
    for (name, one), each in zip(asked.workloads.items(), said, strict=True):
        value = priced(one, each.design, f"{name}: its design")
        if not abs(value / each.value - 1) <= VALUE:
            raise Refuted(f"{name}: its design has {one.goal} {value:.9g}, said is {each.value:.9g}")
        own = {variable: each.design[variable] for variable in one.space.hardware}
        if hardware is not None and own != hardware:
            raise Refuted(f"{name}: its hardware is not that of the other workloads")
        hardware = own
        logs.append(one.sign * math.log(value))
    blended = math.exp(float(blend.value(np.array(logs))))
    if claim.best is None or not abs(blended / claim.best - 1) <= VALUE:
        raise Refuted(f"the designs have {asked.goal} {blended:.9g}, claimed is {claim.best}")
    return f"{len(logs)} designs on common hardware are feasible and have {asked.goal} {blended:.9g}, as claimed"
