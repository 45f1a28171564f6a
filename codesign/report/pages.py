"""Templates of pages, filled in: one style for all, no file beside the page."""

import functools
import importlib.resources
import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from ..core.disk_cache import cached_text, key_of
from ..core.json_yaml import dumps

if TYPE_CHECKING:
    from bokeh.model import Model


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


# Interactive parts of a page: charts as data for Bokeh, which stands in the page itself, and a few lines of script.
#
# The same run gives the same bytes: names that Bokeh makes up are numbered as they come.


LIBRARY = "bokeh.min.js"
NAMED = re.compile(r'"p\d+"')
Data = Mapping[str, Sequence[Any]]
Ends = tuple[float, float]


def chart(
    element_id: str, make: "Callable[..., Model]", how: Sequence[Any], data: Sequence[Data], *ends: Ends
) -> Markup:
    """A place for a chart, and the chart as data: nothing in it can end the element or run.

    Bokeh takes half a second to load. So the chart is made once with empty columns and kept on disk, and what a run
    has to show is filled in.

    Args:
        element_id: name of the element.
        make: (*how, data of each source, ends of each axis that has some) -> model.
        how: words and numbers that the chart depends on beside its data.
        data: of each source, name -> column; no two have the same names.
        ends: of the axes, horizontal first, where they do not follow from the data.
    """

    def structure() -> str:
        from bokeh.embed import json_item

        empty = [{name: [] for name in columns} for columns in data]
        item: dict[str, Any] = dict(json_item(make(*how, *empty, *[(2.0, 3.0)] * len(ends))))
        names: dict[str, str] = {}
        return NAMED.sub(lambda match: names.setdefault(match[0], f'"c{len(names)}"'), dumps(item))

    shape = [repr((element_id, *how, [list(columns) for columns in data], len(ends))), version("bokeh")]
    item = json.loads(cached_text("charts", key_of([*shape, *_sources()]), structure))
    item["target_id"] = element_id
    _fill(item, data, iter(ends))
    text = dumps(item).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    result = Markup('<script type="application/json" data-chart="{}">{}</script>').format(element_id, Markup(text))
    return Markup('<div class="chart" id="{}"></div>{}').format(element_id, result)


def _sources() -> Iterator[bytes]:
    """The modules that charts are made by."""
    here = importlib.resources.files(__package__)
    return (here.joinpath(name).read_bytes() for name in ("charts.py", "pages.py"))


def _fill(node: Any, data: Sequence[Data], ends: Iterator[Ends]) -> None:
    """Put columns and ends of axes where the empty ones are."""
    if isinstance(node, list):
        for part in node:
            _fill(part, data, ends)
    if not isinstance(node, dict):
        return
    inner = node.get("attributes", {})
    if node.get("name") == "ColumnDataSource" and node.get("type") == "object":
        names = [name for name, _ in inner["data"]["entries"]]
        columns = next(each for each in data if list(each) == names)
        inner["data"]["entries"] = [[name, [_number(entry) for entry in columns[name]]] for name in names]
    elif node.get("name") == "Range1d":
        inner["start"], inner["end"] = next(ends)
    else:
        for part in node.values():
            _fill(part, data, ends)


def _number(value: Any) -> Any:
    """Value in the form that Bokeh writes: numbers that JSON lacks have a name, and columns may hold columns."""
    if isinstance(value, list | tuple):
        return [_number(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        name = "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"
        return {"type": "number", "value": name}
    return value


@functools.cache
def library() -> Markup:
    """Bokeh's script, without the line by which a debugger would look for its source."""
    result = importlib.util.find_spec("bokeh")  # found and not loaded
    text = (Path((result and result.origin) or "").parent / "server" / "static" / "js" / LIBRARY).read_text(
        encoding="utf-8"
    )
    text = re.sub(r"//# sourceMappingURL=.*", "", text).replace("</script", "<\\/script")
    return Markup("<script>{}</script>").format(Markup(text))


def inline_script() -> Markup:
    """Sorting, filtering, linked marks and sliders."""
    text = importlib.resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    return Markup("<script>{}</script>").format(Markup(text))
