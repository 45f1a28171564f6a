"""How far predictions may be off: errors met in cross-validation, drawn together and carried to every metric."""

from .draws import COUNT as COUNT
from .draws import drawn as drawn
from .draws import intervals as intervals
from .spreads import SHARE as SHARE
from .spreads import Spread as Spread
from .spreads import spreads as spreads
