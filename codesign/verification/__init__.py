"""Checks a certified search without its code: reads what its bounds rest on, derives them anew, attacks the claim."""

from .certificate import Certificate as Certificate
from .certificate import Claim as Claim
from .certificate import Refuted as Refuted
from .certificate import certificate_of as certificate_of
from .front_answer import verify_front as verify_front
from .front_answer import verify_unproven as verify_unproven
from .mix import verify_mix as verify_mix
from .mix_certificate import MixCertificate as MixCertificate
from .mix_certificate import mix_certificate_of as mix_certificate_of
from .mix_designs import AskedMix as AskedMix
from .mix_designs import Said as Said
from .study import Asked as Asked
from .verify import Answer as Answer
from .verify import verify as verify
