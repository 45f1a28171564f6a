"""`codesign explore`: a page on this machine alone, where numbers and limits of a study have sliders.

From low to high: what has a slider (`knobs`), where it begins (`beginning`), what follows at every plan (`answers`),
what is worth waiting for (`reader_page`, `proving`), how it looks (`reader_page`), who may see it (`server`).
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .answers import Answerer
    from .beginning import SliderStudy, given
    from .reader_page import Page
    from .server import server_of
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Answerer", "Page", "SliderStudy", "given", "server_of"]
