"""The page: sliders, and what is told anew when one moves. One object for each reader."""

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bokeh.document import Document
from bokeh.models import Button, Column, CustomJSTickFormatter, Div, Slider
from markupsafe import Markup

from ..report import bars, charts
from ..report.run_folder import MissingPart, RunFolder
from . import fragments
from .answers import Answerer, Explored
from .beginning import Given
from .details import with_operations, with_slopes
from .knobs import STEPS, Knob
from .proving import DONE, Prover
from .style import INSIDE, TEMPLATE

REST_MS = 250  # after the last move of a slider
LOOK_MS = 400  # between two looks at the proof
SHOWN_BARS, SHOWN_SLOPES = 5, 12
TEXTS = "return texts[Math.max(0, Math.min(texts.length - 1, Math.round(tick)))]"
PIECES = (
    "job",
    "headline",
    "proof",
    "budgets",
    "time",
    "memory",
    "money",
    "slopes",
    "designs",
    "share",
    "fleet",
    "state",
)


class Page:
    """Sliders, pieces and pictures of one reader.

    Args:
        found: the study.
        answerer: shared by all readers, as are the proofs that it keeps.
        document: that the reader sees.
        address: of the page.
        moved: key of a knob -> value, from a link.
    """

    def __init__(
        self,
        found: Given,
        answerer: Answerer,
        document: Document,
        address: str,
        moved: Mapping[str, float],
    ):
        self.given, self._answerer, self.document, self._address = found, answerer, document, address
        self.values = found.start | {k.key: k.within(moved[k.key]) for k in found.knobs if k.key in moved}
        self._prover, self._pool = Prover(found, answerer.proofs), ThreadPoolExecutor(1)
        self._prover.ask(self.values)
        self._version, self._waiting, self._setting = 0, False, False
        self.answer: Explored = answerer.at(self.values)
        self._known: RunFolder | None = None
        self._proof_text = ""
        self.pieces = {name: Div(name=name, stylesheets=[INSIDE], sizing_mode="stretch_width") for name in PIECES}
        self.sliders = {knob.key: self._slider(knob.key) for knob in found.knobs}
        self.best = Button(label="Go to the best design found", disabled=True, name="best")
        self.reset = Button(label="Back to the start", name="reset")
        self.best.on_click(self._to_best)
        self.reset.on_click(lambda: self._set(self.given.start))
        self._front, self._dots = charts.front_chart(self.answer.run, self.answer.dots)
        self._front.name = "front"
        self._roof: Any = None
        self._place()
        self._show("job", lambda: fragments.job(found, self.answer.run))
        self._show("fleet", lambda: fragments.fleet(found.run))
        self._timer: Any = None
        self._tell()
        self._rest()

    def _slider(self, key: str) -> Slider:
        knob = next(knob for knob in self.given.knobs if knob.key == key)
        slider = Slider(
            start=0, end=STEPS, step=1, value=knob.step(self.values[key]), tooltips=False, title=knob.title, name=key,
            format=self._format(knob), sizing_mode="stretch_width", stylesheets=[INSIDE],
        )  # fmt: skip
        slider.on_change("value", partial(self._moved, key))
        return slider

    def _format(self, knob: Knob) -> CustomJSTickFormatter:
        """Formatter of a slider: its text at each step, and exactly where it stands, which need not be a whole step."""
        texts, value = [knob.text(knob.at(step)) for step in range(STEPS + 1)], self.values[knob.key]
        texts[round(knob.step(value))] = knob.text(value)
        return CustomJSTickFormatter(args={"texts": texts}, code=TEXTS)

    def _place(self) -> None:
        document = self.document
        document.title = f"{self.given.title} · codesign explore"
        document.template = TEMPLATE  # pyright: ignore[reportAttributeAccessIssue]  (a text is one too)
        document.template_variables.update(heading=self.given.title, ranges=bool(self.sliders), how=self._answerer.how)
        controls: Any = [*self.sliders.values(), self.best, self.reset]
        document.add_root(Column(children=controls, name="controls", sizing_mode="stretch_width"))
        for piece in self.pieces.values():
            document.add_root(piece)
        document.add_root(self._front)
        roofline = Column(name="roofline", sizing_mode="stretch_width")
        document.add_root(roofline)
        self._roofline = roofline
        document.add_periodic_callback(self._look, LOOK_MS)
        document.on_session_destroyed(lambda _: self.close())

    def close(self) -> None:
        """The reader has gone."""
        self._prover.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _moved(self, key: str, _: str, old: float, new: float) -> None:
        """One slider: what is shown follows once, however many moves are waiting."""
        if self._setting:
            return
        knob = next(knob for knob in self.given.knobs if knob.key == key)
        self.values[key] = knob.at(new)
        if not self._waiting:
            self._waiting = True
            self.document.add_next_tick_callback(self.follow)

    def _set(self, values: Mapping[str, float]) -> None:
        """Move sliders without asking who moved them."""
        self.values |= values
        self._setting = True
        for knob in self.given.knobs:
            self.sliders[knob.key].update(format=self._format(knob), value=knob.step(self.values[knob.key]))
        self._setting = False
        self.follow()

    def _to_best(self) -> None:
        proof = self._prover.look()
        if proof.state == DONE and proof.run is not None:
            self._set(fragments.hardware_of(self.given, proof.run))

    def follow(self) -> None:
        """Price the place of the sliders and tell it; what takes longer comes later."""
        self._waiting = False
        self._version += 1
        self._known = None
        self._prover.ask(self.values)
        self.answer = self._answerer.at(self.values)
        self._tell()
        self._rest()

    def _tell(self) -> None:
        """Update all panels that are available at once."""
        answer, run = self.answer, self.answer.run
        self._show("headline", lambda: fragments.headline(answer, self._answerer.how, self._known))
        self._show("budgets", lambda: fragments.budgets(run))
        self._show("time", lambda: bars.time_bars(run, SHOWN_BARS))
        self._show("memory", lambda: bars.memory_bars(run, SHOWN_BARS))
        self._show("money", lambda: bars.money_bars(run))
        data, unit = charts.front_data(run, answer.dots)
        self._dots.data = dict(data)
        self._front.xaxis[0].axis_label = f"{run.metric('time_s').label} [{unit}]"
        self._told_proof()

    def _show(self, name: str, make: Callable[[], Markup]) -> None:
        text = str(fragments.or_why_not(make))
        if self.pieces[name].text != text:
            self.pieces[name].text = text

    def _told_proof(self) -> None:
        state = self._prover.look()
        self._show("proof", lambda: fragments.proof(state, self.answer))
        self.best.disabled = state.state != DONE or not fragments.hardware_of(self.given, state.run or self.answer.run)

    def _look(self) -> None:
        """At the proof, now and then."""
        self._told_proof()

    def _rest(self) -> None:
        """Ask for what takes longer once the sliders are at rest."""
        if self._timer is not None:
            with contextlib.suppress(ValueError):  # it has just begun
                self.document.remove_timeout_callback(self._timer)
        self._timer = self.document.add_timeout_callback(self._more, REST_MS)

    def _more(self) -> None:
        """Fill in what takes longer, beside the page; given up where sliders have moved on."""
        self._timer = None
        version, answer = self._version, self.answer
        self._show("designs", lambda: fragments.designs(answer.run))
        self._show("share", lambda: fragments.share(self.given, self.values, self._address))
        self._show("job", lambda: fragments.job(self.given, answer.run))
        self.pieces["state"].text = "computing what it hangs on"
        self._pool.submit(self._slow, version, answer, dict(self.values))

    def _slow(self, version: int, answer: Explored, values: Mapping[str, float]) -> None:
        try:
            if version != self._version:
                return
            if not self._answerer.whole:
                answer = self._answerer.at(values, every=True)
            run = with_operations(self.given, answer.run)
            self.document.add_next_tick_callback(partial(self._later, version, answer, run))
            if version != self._version:
                return
            run = with_slopes(self.given, run)
            self.document.add_next_tick_callback(partial(self._last, version, run))
        except Exception as error:  # a piece that fails says so; the rest of the page stays
            text = str(Markup("not known: {}").format(f"{type(error).__name__}: {error}"))
            self.document.add_next_tick_callback(partial(self._failed, version, text))

    def _failed(self, version: int, text: str) -> None:
        if version == self._version:
            self.pieces["state"].text = text

    def _later(self, version: int, answer: Explored, run: RunFolder) -> None:
        if version != self._version:
            return
        if not self._answerer.whole:
            self.answer = answer
            self._tell()
        try:
            marks, roofs, names, ends = charts.roofline_data(run)
        except MissingPart:
            return
        if self._roof is None:
            made, self._roof = charts.roofline_chart(run)
            self._roofline.children = [made]
            return
        for source, data in zip(self._roof, (marks, roofs, names), strict=True):
            source.data = data
        shown: Any = self._roofline.children[0]
        shown.x_range.update(start=ends[0], end=ends[1])
        low, high = charts.roof_ends(marks, roofs)
        shown.y_range.update(start=low, end=high)

    def _last(self, version: int, run: RunFolder) -> None:
        if version != self._version:
            return
        self._known = run
        self._show("slopes", lambda: bars.elasticity_bars(run, SHOWN_SLOPES))
        self._show("headline", lambda: fragments.headline(self.answer, self._answerer.how, run))
        self.pieces["state"].text = ""
