"""Checks a certified search without its code: reads what its bounds rest on, derives them anew, attacks the claim."""

from . import bound_check as bound_check
from .assignment_check import check_assignment as check_assignment
from .attack import ROUNDING as ROUNDING
from .attack import Attack as Attack
from .attack import aims_of as aims_of
from .attack import sample as sample
from .bound_check import verify as verify
from .derivation import Answer as Answer
from .derivation import AttackEffort as AttackEffort
from .derivation import Derivation as Derivation
from .derivation import Refuted as Refuted
from .derivation import Report as Report
from .derivation import StatedClaim as StatedClaim
from .derivation import derivation_of as derivation_of
from .front_check import verify_front as verify_front
from .front_check import verify_unproven as verify_unproven
from .mix_check import ConfiguredMix as ConfiguredMix
from .mix_check import WorkloadStatement as WorkloadStatement
from .mix_check import verify_mix as verify_mix
from .mix_derivation import MixDerivation as MixDerivation
from .mix_derivation import mix_derivation_of as mix_derivation_of
from .model_answers import CheckedModel as CheckedModel
from .model_answers import ExactRows as ExactRows
from .model_answers import VerifiedProblem as VerifiedProblem

__all__ = [
    "ROUNDING", "Answer", "Attack", "AttackEffort", "CheckedModel", "ConfiguredMix", "Derivation", "ExactRows",
    "MixDerivation", "Refuted", "Report", "StatedClaim", "VerifiedProblem", "WorkloadStatement", "aims_of",
    "bound_check", "check_assignment", "derivation_of", "mix_derivation_of", "sample", "verify", "verify_front",
    "verify_mix", "verify_unproven",
]  # fmt: skip
