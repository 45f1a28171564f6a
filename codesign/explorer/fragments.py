"""Pieces of the page as text: everything that is filled in is escaped."""

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from markupsafe import Markup

from ..config.as_sold import device_name, differences_of_rows
from ..core.interval_text import remarks_text
from ..report import bars, text_tables, wording
from ..report.build import fleet_sections
from ..report.labels import number
from ..report.run_folder import PLAN_PREFIX, MissingPart, RunFolder
from ..study.objective import feasible
from .answers import Explored
from .beginning import Given, own_words
from .knobs import HARDWARE, overrides_of
from .proving import DONE, FAILED, RUNS, ProofState

HEADLINES = ("usd_per_million_tokens", "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "joules_per_token",
             "energy_j", "capex_usd", "provisioned_power_w", "usage.hbm", "usage.ddr")  # fmt: skip
NEAR = 5e-4  # relative: what is so close to the best is called the best


def or_why_not(make: Callable[[], Markup]) -> Markup:
    """A piece, or why there is none."""
    try:
        return make()
    except MissingPart as reason:
        return Markup('<p class="soft">Nothing to show: {}.</p>').format(str(reason))


def job(found: Given, run: RunFolder) -> Markup:
    """Job and device: `h100_sxm (modified)` where the sliders, or the study, leave the catalogue's numbers."""
    study, scenario = found.study, found.study.scenario
    (differing,) = differences_of_rows(study, run.designs[:1])
    done = f"{scenario.workload.model.name} {scenario.workload.words.job}"
    return Markup("<h1>{} on {}</h1>").format(done, device_name(scenario, differing))


def headline(answer: Explored, how: str, known: RunFolder | None) -> Markup:
    """Headline: do limits hold, the first numbers with their intervals where these are known, the plan, what binds.

    Args:
        answer: at the sliders.
        how: which plans were priced.
        known: the same with intervals; none while they are not there yet.
    """
    run = known or answer.run
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
    told = remarks_text(dict(best))
    doubt = Markup("<p>{}</p>").format(told) if told else ""
    share = Markup("{:,} of {:,}").format(answer.kept, answer.plans)
    return Markup(
        '<div role="status">{}<div class="figures">{}</div>{}<p><b>Plan</b> {}</p><p><b>Active constraints</b> {}</p>'
        '<p class="soft">Priced: {}; {} keep all limits.</p></div>'
    ).format(
        state, tiles, doubt, plan or "as given", "; ".join(wording.binds(best, run.words)) or "nothing", how, share
    )


def _tile(run: RunFolder, name: str, best: Mapping[str, float]) -> Markup:
    known = run.metric(name)
    told = wording.interval(known, best, name)
    ends = Markup('<small title="90 % interval">{}</small>').format(told) if told else Markup("")
    return Markup("<div><span>{}</span><b>{}</b>{}</div>").format(known.label, known.text(best[name]), ends)


def budgets(run: RunFolder) -> Markup:
    """Bars of the used share of each limit and memory, for the best plan."""
    lines: list[bars.BarLine] = []
    for what, value, bound, share in text_tables.budgets(run):
        kept = feasible(share - 1)
        text = f"{share:.0%}" if share < float("inf") else "no capacity"
        part = bars.Piece(what, "#0072b2" if kept else "#d55e00", min(share, 1.0), f"{value}, limit {bound}", "")
        lines.append(bars.BarLine(f"{what}: {value} ({bound})", (part,), text))
    return bars.bars(lines)


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
                Markup("<td>{}</td>").format(cell if isinstance(cell, str) else bars.text_lines(cell)) for cell in row
            )
        )
        for row in cells.rows
    )
    return Markup(
        '<div class="scroll" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, rows)


def proof(state: ProofState, answer: Explored) -> Markup:
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


def share(found: Given, values: Mapping[str, float], address: str) -> Markup:
    """Command, and link on this machine, that bring this page back."""
    overrides = overrides_of(found.study, found.overrides, found.knobs, values)
    words = shlex.join([*own_words(found.study), *overrides])
    moved = {knob.key: repr(values[knob.key]) for knob in found.knobs if values[knob.key] != knob.start}
    link = f"{address}?{urlencode(moved)}" if moved else address
    return Markup(
        "<p>Search the plan on this hardware, under these limits:</p><pre tabindex=0>codesign optimize {}</pre>"
        "<p>This page again:</p><pre tabindex=0>codesign explore {}</pre>"
        '<p><a href="{}">Link to this page</a> while this server runs.</p>'
    ).format(words, words, link)


def hardware_of(found: Given, run: RunFolder) -> dict[str, float]:
    """Key of each hardware slider -> the value of a run's best design."""
    return {
        knob.key: knob.within(float(run.best[f"var.{knob.name}"]))
        for knob in found.knobs
        if knob.kind == HARDWARE and f"var.{knob.name}" in run.best
    }
