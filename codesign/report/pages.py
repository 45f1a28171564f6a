"""Templates of pages, filled in: one style for all, no file beside the page."""

import importlib.resources
from typing import Any

import jinja2
from markupsafe import Markup


def rendered(template: str, **values: Any) -> str:
    """A page from its template beside this file; what is filled in is escaped.

    Raises:
        ValueError: something that is filled in is not what the template shows.
    """
    files = importlib.resources.files(__package__)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    source = files.joinpath(template).read_text(encoding="utf-8")
    css = Markup(files.joinpath("page.css").read_text(encoding="utf-8"))
    try:
        return environment.from_string(source).render(css=css, **values)
    except jinja2.TemplateError as error:
        raise ValueError(str(error)) from error
