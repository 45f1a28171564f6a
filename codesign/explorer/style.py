"""Template and style sheets of the page."""

import importlib.resources

_FILES = importlib.resources.files("codesign.explorer")
INSIDE = _FILES.joinpath("pieces.css").read_text(encoding="utf-8")
"""Style sheet of each piece, which a browser keeps apart from the page's own style."""
TEMPLATE = _FILES.joinpath("page.html.j2").read_text(encoding="utf-8").replace(
    "/* page.css */", _FILES.joinpath("page.css").read_text(encoding="utf-8")
)  # fmt: skip
"""Template of the page; Bokeh puts its own frame around it, and escapes what is filled in with `|e`."""
