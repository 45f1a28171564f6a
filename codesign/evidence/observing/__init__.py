"""A server under load, measured: `codesign observe URL`.

From low to high: one streamed answer of an OpenAI-compatible server (`endpoint`), prompts of a stated number of tokens
(`driving`), requests in a closed loop or as they arrive (`driving`), what they come to (`observed`).
"""

from .driving import Driven as Driven
from .driving import Observed as Observed
from .driving import PromptSizes as PromptSizes
from .driving import drive as drive
from .driving import measured_sizes as measured_sizes
from .endpoint import Endpoint as Endpoint
from .endpoint import StreamedAnswer as StreamedAnswer
from .endpoint import client_of as client_of
from .endpoint import served_model as served_model

__all__ = [
    "Driven", "Endpoint", "Observed", "PromptSizes", "StreamedAnswer", "client_of", "drive", "measured_sizes",
    "served_model",
]  # fmt: skip
