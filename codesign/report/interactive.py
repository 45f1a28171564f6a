"""What makes a page answer: charts as data for Bokeh, which stands in the page itself, and a few lines of script.

The same run gives the same bytes: names that Bokeh makes up are numbered as they come.
"""

import functools
import importlib.resources
import re
from pathlib import Path
from typing import Any

import bokeh
from bokeh.embed import json_item
from bokeh.model import Model
from markupsafe import Markup

from ..strict_json import dumps

LIBRARY = "bokeh.min.js"
NAMED = re.compile(r'"p\d+"')


def chart(made: Model, place: str) -> Markup:
    """A place for a chart, and the chart as data: nothing in it can end the element or run."""
    item: dict[str, Any] = dict(json_item(made))
    item["target_id"] = place
    names: dict[str, str] = {}
    text = NAMED.sub(lambda found: names.setdefault(found[0], f'"c{len(names)}"'), dumps(item))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    data = Markup('<script type="application/json" data-chart="{}">{}</script>').format(place, Markup(text))
    return Markup('<div class="chart" id="{}"></div>{}').format(place, data)


@functools.cache
def library() -> Markup:
    """Bokeh's script, without the line by which a debugger would look for its source."""
    text = (Path(bokeh.__file__).parent / "server" / "static" / "js" / LIBRARY).read_text(encoding="utf-8")
    text = re.sub(r"//# sourceMappingURL=.*", "", text).replace("</script", "<\\/script")
    return Markup("<script>{}</script>").format(Markup(text))


def own_script() -> Markup:
    """Sorting, filtering, linked marks and sliders."""
    text = importlib.resources.files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    return Markup("<script>{}</script>").format(Markup(text))
