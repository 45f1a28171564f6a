"""The page: sliders, and what is told anew when one moves. One object for each reader."""

import contextlib
import dataclasses
import importlib.resources
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlencode

from bokeh.document import Document
from bokeh.models import Button, Column, CustomJSTickFormatter, Div, Slider
from markupsafe import Markup

from ..config.as_sold import device_name, differences_of_rows
from ..core.interval_text import remarks_text
from ..report import charts, text_tables, wording
from ..report.build import fleet_sections
from ..report.labels import number
from ..report.run_folder import PLAN_PREFIX, MissingPart, RunFolder
from ..search.results import elasticities, ops, placed
from ..study.objective import feasible
from ..uncertainty import uncertain
from .answers import Answerer, ExplorerAnswer
from .beginning import HARDWARE, STEPS, NumberSlider, SliderStudy, config_words, overrides_of
from .proving import DONE, FAILED, RUNS, ProofState, Prover

# Pieces of the page as text: everything that is filled in is escaped.


HEADLINES = ("usd_per_million_tokens", "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "joules_per_token",
             "energy_j", "capex_usd", "provisioned_power_w", "usage.hbm", "usage.ddr")  # fmt: skip
NEAR = 5e-4  # relative: what is so close to the best is called the best


def or_why_not(make: Callable[[], Markup]) -> Markup:
    """A piece, or why there is none."""
    try:
        return make()
    except MissingPart as reason:
        return Markup('<p class="soft">Nothing to show: {}.</p>').format(str(reason))


def job(setup: SliderStudy, run: RunFolder) -> Markup:
    """Job and device: `h100_sxm (modified)` where the sliders, or the study, leave the catalogue's numbers."""
    study, scenario = setup.study, setup.study.scenario
    (differing,) = differences_of_rows(study, run.designs[:1])
    done = f"{scenario.workload.model.name} {scenario.workload.words.job}"
    return Markup("<h1>{} on {}</h1>").format(done, device_name(scenario, differing))


def headline(answer: ExplorerAnswer, how: str, proven_run: RunFolder | None) -> Markup:
    """Headline: do limits hold, the first numbers with their intervals where these are known, the plan, what binds.

    Args:
        answer: at the sliders.
        how: which plans were priced.
        proven_run: the same with intervals; none while they are not there yet.
    """
    run = proven_run or answer.run
    best = run.best
    names = [name for name in dict.fromkeys((run.goal, *HEADLINES)) if best.get(name) == best.get(name, float("nan"))]
    names = [name for name in names if not (name == "time_s" and run.is_serving)]
    tiles = Markup("").join(_tile(run, name, best) for name in names)
    plan = " · ".join(text for text in (wording.degrees(best), wording.choices(best, run.words)) if text)
    state = Markup('<p class="ok">Within all limits.</p>')
    if not best["feasible"]:
        state = Markup(
            '<p class="warn">No plan keeps all limits here; this one breaks them least, by {:.1%}.</p>'
        ).format(best["excess"])
    doubts = remarks_text(dict(best))
    doubt = Markup("<p>{}</p>").format(doubts) if doubts else ""
    share = Markup("{:,} of {:,}").format(answer.feasible_count, answer.plans)
    return Markup(
        '<div role="status">{}<div class="figures">{}</div>{}<p><b>Plan</b> {}</p><p><b>Active constraints</b> {}</p>'
        '<p class="soft">Priced: {}; {} keep all limits.</p></div>'
    ).format(
        state, tiles, doubt, plan or "as given", "; ".join(wording.binds(best, run.words)) or "nothing", how, share
    )


def _tile(run: RunFolder, name: str, best: Mapping[str, float]) -> Markup:
    metric = run.metric(name)
    interval = wording.interval(metric, best, name)
    ends = Markup('<small title="90 % interval">{}</small>').format(interval) if interval else Markup("")
    return Markup("<div><span>{}</span><b>{}</b>{}</div>").format(metric.label, metric.text(best[name]), ends)


def budgets(run: RunFolder) -> Markup:
    """Bars of the used share of each limit and memory, for the best plan."""
    lines: list[text_tables.BarLine] = []
    for what, value, bound, share in text_tables.budgets(run):
        meets_limit = feasible(share - 1)
        text = f"{share:.0%}" if share < float("inf") else "no capacity"
        part = text_tables.BarPiece(
            what, "#0072b2" if meets_limit else "#d55e00", min(share, 1.0), f"{value}, limit {bound}", ""
        )
        lines.append(text_tables.BarLine(f"{what}: {value} ({bound})", (part,), text))
    return text_tables.bars(lines)


def fleet(run: RunFolder | None) -> Markup:
    """Fleet that was simulated, and replicas by the hour, as the run's page has them; empty where there are none."""
    parts = fleet_sections(run) if run is not None else []
    result = Markup("")
    for part in parts:
        picture = Markup("")
        if part.picture is not None:
            picture = Markup('<img src="{}" alt="{}" style="max-width:100%">').format(
                part.picture.data_uri, part.picture.alt
            )
        said = Markup("<p>{}</p>").format(part.missing or part.text)
        result += Markup("<h2>{}</h2>{}{}{}").format(
            part.title, said, picture, _table(part.table) if part.table else ""
        )
    return result


def designs(run: RunFolder) -> Markup:
    """The best plans, a line each."""
    same = [f"{PLAN_PREFIX}{name}" for name in wording.hardware_names(run)]
    return _table(text_tables.best_designs(dataclasses.replace(run, designs=run.designs.drop(columns=same))))


def _table(cells: text_tables.PageTable) -> Markup:
    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in cells.head)
    rows = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup("<td>{}</td>").format(cell if isinstance(cell, str) else text_tables.text_lines(cell))
                for cell in row
            )
        )
        for row in cells.rows
    )
    return Markup(
        '<div class="scroll" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, rows)


def proof(state: ProofState, answer: ExplorerAnswer) -> Markup:
    """Panel on the proof: the proven bound, and how far the sliders are from the best design found."""
    run, goal = answer.run, float(answer.run.best["objective"])
    label = run.metric(run.goal)
    if state.state == RUNS:
        text = Markup("Proving: all plans and all hardware within the sliders' ranges are searched ({:.0f} s).").format(
            state.seconds
        )
        return _state("runs", "Not proven yet", text)
    if state.state == FAILED:
        return _state("failed", "Nothing to prove", Markup("{}").format(state.text))
    if state.state != DONE or state.run is None:
        return _state("waits", "Not proven yet", Markup("The proof begins when the limits are at rest."))
    result = state.run.certificate
    best = float(state.run.best["objective"])
    bound = result.bound if result is not None else None
    if bound is None:
        why = result.reason if result is not None and result.reason else "the search claims no bound"
        text = Markup("The best design found has {} {}; nothing is proven: {}.").format(
            wording.inside(label.label), label.text(best, 4), why
        )
        return _state("done", "Searched, no proof", text)
    worse = (best / goal if run.maximised else goal / best) - 1
    here = "These sliders are at the best design found." if abs(worse) < NEAR else (
        f"These sliders are {number(worse, '%', 3)} worse than the best design found."
    )  # fmt: skip
    claim = "Under these limits no design within the sliders' ranges has {} {} than {}; the best found has {}. {}"
    text = Markup(claim).format(
        "more" if run.maximised else "less", wording.inside(label.label), label.text(bound, 4), label.text(best, 4),
        here if run.best["feasible"] else "These sliders keep no plan within the limits.",
    )  # fmt: skip
    assuming = result.assuming if result is not None else ""
    sure = "Proven" if result is not None and result.certified and not assuming else "Bounded"
    gap = ""
    if result is not None and result.gap is not None:
        gap = f" to {number(result.gap, '%', 4)}" if result.gap >= 1e-4 else " to less than 0.01 %"
    model = Markup(' <span class="soft">A proof about the model; how far the model is off, the intervals say.</span>')
    if assuming:
        model = Markup(' <span class="soft">A bound under the assumption that {}.</span>').format(assuming)
    return _state("done", f"{sure}{gap}", text + model)


def _state(name: str, title: str, text: Markup) -> Markup:
    return Markup('<div role="status" class="proof {}"><b>{}</b> {}</div>').format(name, title, text)


def share(setup: SliderStudy, values: Mapping[str, float], address: str) -> Markup:
    """Command, and link on this machine, that bring this page back."""
    overrides = overrides_of(setup.study, setup.overrides, setup.knobs, values)
    words = shlex.join([*config_words(setup.study), *overrides])
    moved = {knob.key: repr(values[knob.key]) for knob in setup.knobs if values[knob.key] != knob.start}
    link = f"{address}?{urlencode(moved)}" if moved else address
    return Markup(
        "<p>Search the plan on this hardware, under these limits:</p><pre tabindex=0>codesign optimize {}</pre>"
        "<p>This page again:</p><pre tabindex=0>codesign explore {}</pre>"
        '<p><a href="{}">Link to this page</a> while this server runs.</p>'
    ).format(words, words, link)


def hardware_of(setup: SliderStudy, run: RunFolder) -> dict[str, float]:
    """Key of each hardware slider -> the value of a run's best design."""
    return {
        knob.key: knob.within(float(run.best[f"var.{knob.name}"]))
        for knob in setup.knobs
        if knob.kind == HARDWARE and f"var.{knob.name}" in run.best
    }


# Details of an answer that take longer: its operations, what it hangs on, how far its numbers may be off.


def with_operations(setup: SliderStudy, run: RunFolder) -> RunFolder:
    """Copy of a run with the operations of the best design."""
    best = placed(setup.study.problem, run.designs.iloc[0])
    return dataclasses.replace(run, ops=ops(best))


def with_slopes(setup: SliderStudy, run: RunFolder) -> RunFolder:
    """Copy of a run with elasticities, and 90 % intervals of the best design."""
    best = placed(setup.study.problem, run.designs.iloc[0])
    slopes = elasticities(best, setup.study.provenance)
    frame = run.designs.copy()
    for name, value in uncertain(best).columns().items():
        frame[name] = [value] + [float("nan")] * (len(frame) - 1)
    return dataclasses.replace(run, elasticities=slopes, designs=frame)


# Template and style sheets of the page.


_FILES = importlib.resources.files("codesign.explorer")
INSIDE = _FILES.joinpath("pieces.css").read_text(encoding="utf-8")
"""Style sheet of each piece, which a browser keeps apart from the page's own style."""
TEMPLATE = _FILES.joinpath("page.html.j2").read_text(encoding="utf-8").replace(
    "/* page.css */", _FILES.joinpath("page.css").read_text(encoding="utf-8")
)  # fmt: skip
"""Template of the page; Bokeh puts its own frame around it, and escapes what is filled in with `|e`."""


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
        setup: SliderStudy,
        answerer: Answerer,
        document: Document,
        address: str,
        moved: Mapping[str, float],
    ):
        self.given, self._answerer, self.document, self._address = setup, answerer, document, address
        self.values = setup.start | {k.key: k.within(moved[k.key]) for k in setup.knobs if k.key in moved}
        self._prover, self._pool = Prover(setup, answerer.proofs), ThreadPoolExecutor(1)
        self._prover.ask(self.values)
        self._version, self._waiting, self._setting = 0, False, False
        self.answer: ExplorerAnswer = answerer.at(self.values)
        self._proven_run: RunFolder | None = None
        self._proof_text = ""
        self.pieces = {name: Div(name=name, stylesheets=[INSIDE], sizing_mode="stretch_width") for name in PIECES}
        self.sliders = {knob.key: self._slider(knob.key) for knob in setup.knobs}
        self.best = Button(label="Go to the best design found", disabled=True, name="best")
        self.reset = Button(label="Back to the start", name="reset")
        self.best.on_click(self._to_best)
        self.reset.on_click(lambda: self._set(self.given.start))
        self._front, self._dots = charts.front_chart(self.answer.run, self.answer.dots)
        self._front.name = "front"
        self._roof: Any = None
        self._lay_out()
        self._show("job", lambda: job(setup, self.answer.run))
        self._show("fleet", lambda: fleet(setup.run))
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

    def _format(self, knob: NumberSlider) -> CustomJSTickFormatter:
        """Formatter of a slider: its text at each step, and exactly where it stands, which need not be a whole step."""
        texts, value = [knob.text(knob.at(step)) for step in range(STEPS + 1)], self.values[knob.key]
        texts[round(knob.step(value))] = knob.text(value)
        return CustomJSTickFormatter(args={"texts": texts}, code=TEXTS)

    def _lay_out(self) -> None:
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
            self._set(hardware_of(self.given, proof.run))

    def follow(self) -> None:
        """Price the place of the sliders and tell it; what takes longer comes later."""
        self._waiting = False
        self._version += 1
        self._proven_run = None
        self._prover.ask(self.values)
        self.answer = self._answerer.at(self.values)
        self._tell()
        self._rest()

    def _tell(self) -> None:
        """Update all panels that are available at once."""
        answer, run = self.answer, self.answer.run
        self._show("headline", lambda: headline(answer, self._answerer.how, self._proven_run))
        self._show("budgets", lambda: budgets(run))
        self._show("time", lambda: text_tables.time_bars(run, SHOWN_BARS))
        self._show("memory", lambda: text_tables.memory_bars(run, SHOWN_BARS))
        self._show("money", lambda: text_tables.money_bars(run))
        data, unit = charts.front_data(run, answer.dots)
        self._dots.data = dict(data)
        self._front.xaxis[0].axis_label = f"{run.metric('time_s').label} [{unit}]"
        self._show_proof()

    def _show(self, name: str, make: Callable[[], Markup]) -> None:
        text = str(or_why_not(make))
        if self.pieces[name].text != text:
            self.pieces[name].text = text

    def _show_proof(self) -> None:
        state = self._prover.look()
        self._show("proof", lambda: proof(state, self.answer))
        self.best.disabled = state.state != DONE or not hardware_of(self.given, state.run or self.answer.run)

    def _look(self) -> None:
        """At the proof, now and then."""
        self._show_proof()

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
        self._show("designs", lambda: designs(answer.run))
        self._show("share", lambda: share(self.given, self.values, self._address))
        self._show("job", lambda: job(self.given, answer.run))
        self.pieces["state"].text = "computing what it hangs on"
        self._pool.submit(self._slow, version, answer, dict(self.values))

    def _slow(self, version: int, answer: ExplorerAnswer, values: Mapping[str, float]) -> None:
        try:
            if version != self._version:
                return
            if not self._answerer.all_plans:
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

    def _later(self, version: int, answer: ExplorerAnswer, run: RunFolder) -> None:
        if version != self._version:
            return
        if not self._answerer.all_plans:
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
        self._proven_run = run
        self._show("slopes", lambda: text_tables.elasticity_bars(run, SHOWN_SLOPES))
        self._show("headline", lambda: headline(self.answer, self._answerer.how, run))
        self.pieces["state"].text = ""
