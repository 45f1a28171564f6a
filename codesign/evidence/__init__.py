"""Evidence for the model: measurements, calibration, validation, published claims."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import calculon as calculon
    from . import reproduction as reproduction
    from .calibration import calibrate as calibrate
    from .measurements import SCHEMAS as SCHEMAS
    from .measurements import Schema as Schema
    from .validation import validate as validate
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["SCHEMAS", "Schema", "calculon", "calibrate", "reproduction", "validate"]
