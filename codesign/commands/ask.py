"""`codesign serve` and `codesign train`: a plain question answered by the searches that `codesign compare` runs."""

import argparse
import dataclasses
import math
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.markup import escape

from ..config import Study, study_from_config
from ..config.device_counts import (
    BOX,
    between,
    counts_of_replica,
    device_counts,
    least_devices,
    left_out,
    listed,
    more_devices,
    rack_of,
)
from ..config.parts_built import format_lines
from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..model.workloads import AbstractServing
from ..report.comparison_figures import api_figure, write_slide
from ..report.drawing import render
from ..report.side_by_side import Comparison
from ..study.plan_axes import EVERY, POWERS
from .api_prices import ApiPrices, SelfHostedFleet, api_prices, load_table, usd_per_request
from .candidates import Candidate, study_of
from .compare import dated, finish, run_all, run_candidate
from .comparing import beside_each_other
from .questions import Question, refuse_search, serving_question, training_question
from .remarks import say_idle
from .setup import prepare_jax
from .terminal import console
from .what_to_buy import (
    MONTH_S,
    SURE,
    Margin,
    Purchase,
    answer_lines,
    answer_of,
    margin_of,
    money,
    share_within_limits,
    slide_of,
    with_margin,
)

COUNT = "var.device_count"
QUIET = ("search.proof.explain=false",)  # of a search that need not have a design
QUICK, WHY = ("search.explain=false",), "-why"  # a list of counts that is too short needs no reason
NARROWER, NEAR_CENTRE, WIDE = 2, 0.01, "-wide"  # searches with narrower margins; worth of one; folder put aside
SAME_COST = 0.005  # share of the cost that a design with room within its limits may be dearer, and be the answer
STRICTER = 6  # searches with wider margins, for a chance of keeping those asked for
WIDENED = 3  # times that more devices are tried where all listed are too few
REQUEST_TIMES = ("ttft_", "tpot_", "itl_", "e2e_")  # limits that more replicas do not break
FEW_PAIRS = 200_000  # plans of two pools up to which degrees that are no powers of two are searched, too
STAGES = ("pp", "prefill_pp")  # of which few are listed where degrees are powers of two
FEW_PLANS = 40_000  # plans at a rate up to which all are searched at once: a first look at some would take as long
NONE_IN_ALL_CASES = "no design keeps all limits with the margin"
MOST_BOXES = 16  # below the best that are all looked at
CLOSER = 3  # searches of all plans, where counts beside the best were left out


def serve(options: argparse.Namespace, words: Sequence[str], root: Path | str = "runs") -> int:
    """Answer `codesign serve`.

    Args:
        options: of the command line.
        words: of the command line, as they stand on the page.
        root: folder of run folders.

    Returns:
        0, or 2 where nothing keeps the limits.

    Raises:
        ConfigError: a value that is none.
    """
    return _answer(serving_question(options), options, words, Path(root))


def train(options: argparse.Namespace, words: Sequence[str], root: Path | str = "runs") -> int:
    """Answer `codesign train`; arguments as those of `serve`.

    Raises:
        ConfigError: a value that is none.
    """
    return _answer(training_question(options), options, words, Path(root))


def _answer(question: Question, options: argparse.Namespace, words: Sequence[str], root: Path) -> int:
    if options.show_config:
        prepare_jax()
        places = _candidate_spaces(question)
        for candidate, candidate_space in zip(question.candidates, places, strict=True):
            print(shlex.join(["codesign", "optimize", *_with_counts(candidate, candidate_space.counts).overrides]))
        return 0
    prices = api_prices(options.api) if getattr(options, "api", None) else None
    if prices is not None and not question.requests_per_s:
        raise ConfigError("--api: an API is paid by the request: add --rate 30/s")
    return answered(question, options, words, root, prices).code


class QuestionAnswer(NamedTuple):
    """The joint table of a question's candidates, its folder, the exit code, and the candidate with the best design."""

    joint: Comparison
    folder: Path
    code: int
    best: Candidate | None = None


def answered(
    question: Question,
    options: argparse.Namespace,
    words: Sequence[str],
    root: Path,
    prices: ApiPrices | None = None,
) -> QuestionAnswer:
    """Search the candidates of a question and show the answer.

    Args:
        question: what is asked.
        options: of the command line.
        words: of the command line, as they stand on the page.
        root: folder of run folders.
        prices: of an API that serves the same load.

    Raises:
        ConfigError: a chance of keeping limits beside a search of one's own, or anything wrong in the configuration.
    """
    if question.confidence and (why := refuse_search(options.overrides)):
        raise ConfigError(why)
    prepare_jax()
    out, places = console(), _candidate_spaces(question)
    for candidate, space in zip(question.candidates, places, strict=True):
        framework = next((text for text in candidate.overrides if text.startswith("framework=")), "framework=none")
        out.print(
            f"{'':8s} {candidate.label}: {framework}, devices {listed(space.counts)}{space.formats}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    by_name = {
        candidate.label: candidate_space for candidate, candidate_space in zip(question.candidates, places, strict=True)
    }
    folder, result = run_all(question.candidates, root, _searching(question, by_name))
    command = shlex.join(["codesign", *words])
    joint = dated(beside_each_other(result, ("", ()), pd.DataFrame()), folder, command)
    code = finish(joint, folder, command)
    answer = answer_of(question, joint, result)
    for line in answer_lines(question, answer):
        out.print(line, highlight=False, soft_wrap=True)
    if answer is not None:
        slide = write_slide(slide_of(question, joint, answer), joint, folder)
        out.print(f"slide: {slide}", highlight=False, soft_wrap=True)
    out.print(f"codesign verify {folder}   checks the proof of every row", highlight=False, soft_wrap=True)
    first = next((one for one in result if answer is not None and one.label == answer.candidate), None)
    if prices is not None and answer is not None and first is not None:
        _show_api(question, answer, first, prices, folder)
    return QuestionAnswer(joint, folder, code, first)


def _show_api(question: Question, answer: Purchase, best: Candidate, prices: ApiPrices, folder: Path) -> None:
    """Show the cost of the load at an API's prices, and the loads from which on owning is cheaper."""
    out, each = console(), usd_per_request(prices, best.scenario)
    replicas = float(best.scenario.layout.dp)
    fleet = SelfHostedFleet(answer.month_usd / MONTH_S / replicas, question.requests_per_s / replicas)
    month = each * question.requests_per_s * MONTH_S
    cheaper, always = fleet.cheaper_from(each), fleet.always_from(each)
    out.print(f"api      {prices.text()}", highlight=False)
    text = f"{money(month)} a month at this load, own {money(answer.month_usd)}"
    more = month / answer.month_usd
    factor = f"the API costs {more:.3g} times as much" if more >= 1 else f"owning costs {1 / more:.3g} times as much"
    out.print(f"{'':8s} {text}: {factor}", highlight=False)
    if math.isinf(always):
        out.print(f"{'':8s} a full replica costs more than the API: owning pays at no load", highlight=False)
    else:
        share = cheaper / fleet.requests_per_s
        out.print(
            f"{'':8s} owning pays from {cheaper:.3g} requests/s on (one replica at {share:.0%} of its load), at every"
            f" load from {always:.3g}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    out.print(f"{'':8s} assumed: replicas are always on; the load is the same all day", highlight=False)
    table = load_table(fleet, each, question.requests_per_s, MONTH_S)
    write_files({folder / "api.png": render(api_figure(table, cheaper, always, f"own, {answer.device}"))})
    out.print(f"picture: {folder / 'api.png'}", highlight=False, soft_wrap=True)


def _candidate_spaces(question: Question) -> list["CandidateSpace"]:
    """Show the question and what was assumed; where each candidate is looked for."""
    out = console()
    out.print(f"asked    {escape(question.text)}", highlight=False, soft_wrap=True)
    for number, (what, how) in enumerate(question.assumed):
        out.print(
            f"{'assumed' if not number else '':8s} {escape(what)}  [dim]change by {escape(how)}[/dim]",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    return [_candidate_space(question, candidate) for candidate in question.candidates]


class CandidateSpace(NamedTuple):
    """Device counts that a candidate chooses from at first; devices of its racks.

    coarse: overrides of a first look at fewer values of each axis; formats: number formats by class of
    weights, in words; finer: overrides of every degree where the space has powers of two; powers: those that take
    these back; stages: of a pipeline, at most, where replicas share a batch.
    """

    counts: list[int]
    rack: int = 0
    coarse: tuple[str, ...] = ()
    formats: str = ""
    finer: tuple[str, ...] = ()
    powers: tuple[str, ...] = ()
    stages: int = 1


def _candidate_space(question: Question, candidate: Candidate) -> CandidateSpace:
    """Device counts that a candidate chooses from, and how it is looked for at first.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    study = study_from_config(*candidate.overrides)
    scenario = study.scenario
    say_idle(scenario, candidate.overrides)
    rack = rack_of(scenario) if isinstance(scenario.workload, AbstractServing) else 0
    coarse = tuple(f"space.plan.{name}={POWERS}" for name, word in study.space.words.items() if word == EVERY)
    formats = "".join(f"; {line}" for line in format_lines(scenario)[:1])
    counts = list(question.counts)
    stages = int(scenario.workload.model.layers) if question.batch else 1
    if not counts:
        least = least_devices(scenario, question.flops_per_s(scenario))
        if question.demand:
            counts = device_counts(least, batch=question.batch, rack=rack)
        else:  # one replica
            counts = counts_of_replica(scenario, least)
    return CandidateSpace(counts, rack, coarse, formats, *_finer(study, candidate), stages)


def _finer(study: Study, candidate: Candidate) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Overrides that list every degree of two pools where the space has powers of two, and those that take them back.

    What the user said of an axis stays.
    """
    said = {text.lstrip("+~").partition("=")[0] for text in candidate.overrides}
    space, powers = study.space, {name: word for name, word in study.space.words.items() if word == POWERS}
    if not powers:
        return (), ()
    powers |= {name: str(list(space.plan[name])).replace(" ", "") for name in STAGES if name in space.plan}
    named = {f"space.plan.{name}": word for name, word in powers.items() if f"space.plan.{name}" not in said}
    return tuple(f"{key}={EVERY}" for key in named), tuple(f"{key}={word}" for key, word in named.items())


def _with_counts(candidate: Candidate, counts: Sequence[int]) -> Candidate:
    text = f"++space.plan.device_count=[{','.join(map(str, counts))}]"
    return dataclasses.replace(candidate, overrides=(*candidate.overrides, text))


def _searching(
    question: Question, candidate_spaces: dict[str, CandidateSpace]
) -> Callable[[Candidate, Path, str], Candidate]:
    """The search of one candidate, with more devices where all are too few and with those that a list left out.

    Which counts matter is seen among few values of each axis. What is proven in the end is proven of all of
    them, on every count from the fewest to the first above the best that was looked at.
    """

    def searched(candidate: Candidate, folder: Path, number: str) -> Candidate:
        space, alone = candidate_spaces[candidate.label], candidate
        counts, grows = space.counts, question.demand and not question.counts
        if not grows:
            candidate = alone = _with_every_degree(candidate, space, counts)
            result = _search(candidate, counts, folder, number)
            return _with_chance(question, candidate, result, space, counts, folder, number)
        quick = dataclasses.replace(candidate, overrides=(*candidate.overrides, *QUICK))
        many = not question.batch and _plans(quick, counts) > FEW_PLANS  # each of which is a queue to solve
        coarse = space.coarse if many else ()
        first = dataclasses.replace(quick, overrides=(*quick.overrides, *coarse))
        result = _search(first, counts, folder, number)
        for _ in range(WIDENED):
            top = result.best is not None and result.best[COUNT] == counts[-1] and len(counts) > 1
            few = result.study is not None and (result.best is None or top)
            more = more_devices(counts, question.batch, space.rack) if few else []
            if not more:
                break
            result = _search(first, sorted({*counts[-1:], *more}) if top else more, folder, number)
            counts = sorted({*counts, *more})
        between_ends = result.best is None and (question.batch or _falls_short_of_more(result))
        some = left_out(space.counts, question.batch, space.stages) if between_ends else []
        if some and result.study is not None:  # a budget or a power may allow fewer than the next that was listed
            again = _search(first, sorted({*space.counts, *some}), folder, number)
            if again.best is not None:
                result, counts = again, sorted({*space.counts, *some})
        proven = counts if not coarse and result.study is not None and {*counts} == _counts_of(result) else []
        looked_around = 0
        for _ in range(CLOSER):
            if result.best is not None and not (question.batch and looked_around == int(result.best[COUNT])):
                looked_around = int(result.best[COUNT])
                counts = _around(question, counts, looked_around, space.stages)
            if alone is candidate and (wide := _with_every_degree(quick, space, counts)) is not quick:
                alone = dataclasses.replace(alone, overrides=(*alone.overrides, *space.finer))
                quick, proven, coarse = wide, [], (*space.powers, *coarse)
            if {*counts} <= {*proven} or result.study is None:
                counts = proven or counts
                break
            result, proven = _search(quick, counts, folder, number), counts  # all, so that the proof is of all of them
        if result.best is None and result.study is not None:  # what the first counts lack, and the most devices
            why = _search(alone, sorted({*space.counts, *some, counts[-1]}), folder, f"{number}{WHY}")
            shutil.rmtree(folder / f"{number}{WHY}", ignore_errors=True)
            result = dataclasses.replace(result, why=why.why)
        return _with_chance(question, alone, result, space._replace(coarse=coarse), counts, folder, number)

    return searched


def _falls_short_of_more(candidate: Candidate) -> bool:
    """True if a limit may rule out more devices where fewer keep it: a budget or a power, not a time of a request."""
    limits = {} if candidate.study is None else candidate.study.objective.limits
    return any(not name.startswith(REQUEST_TIMES) for name in limits)


def _with_every_degree(candidate: Candidate, space: CandidateSpace, counts: Sequence[int]) -> Candidate:
    """A candidate of two pools with every degree, not powers of two alone, where its plans are few; else as it is."""
    wide = dataclasses.replace(candidate, overrides=(*candidate.overrides, *space.finer))
    return wide if space.finer and 0 < _plans(wide, counts) <= FEW_PAIRS else candidate


def _plans(candidate: Candidate, counts: Sequence[int]) -> float:
    """Legal plans on these counts, inf of too many to list; 0 of what cannot be built, as its search will say."""
    try:
        study = study_of(_with_counts(candidate, counts))
        return study.space.size(study.scenario)
    except ConfigError:
        return 0.0


def _around(question: Question, counts: list[int], best: int, stages: int = 1) -> list[int]:
    """Counts that were looked at, and those around the best that were left out.

    Where a rate is served, more devices than the best's cost more: the next count is all that is looked at of them; and
    fewer, if they keep the limits, cost less: every box is looked at where these are not many.
    """
    if question.batch:
        return sorted({*counts, *between(counts, best, question.batch, stages=stages)})
    closer = between(counts, best, most_above=1)
    more = sorted(count for count in {*counts, *closer} if count > best)
    boxes = [count for count in range(BOX, best, BOX) if count >= counts[0]]
    fewer = boxes if len(boxes) <= MOST_BOXES else [count for count in closer if count < best]
    return sorted({*(count for count in counts if count <= best), *fewer, best, *more[:1]})


def _with_chance(
    question: Question,
    candidate: Candidate,
    current: Candidate,
    space: CandidateSpace,
    counts: list[int],
    folder: Path,
    number: str,
) -> Candidate:
    """The best design that keeps the limits with a chance, or one with more room that costs as much."""
    result = _at_chance(question, candidate, current, space, counts, folder, number)
    return _with_room(question, candidate, result, space, folder, number) if question.requests_per_s else result


def _at_chance(
    question: Question,
    candidate: Candidate,
    current: Candidate,
    space: CandidateSpace,
    counts: list[int],
    folder: Path,
    number: str,
) -> Candidate:
    """The best design that keeps the limits with the chance that was asked for, by searches with wider margins."""
    if not question.confidence or current.best is None or current.study is None:
        return current
    objective, centre = current.study.objective, current
    in_limits, first = (
        share_within_limits(current, objective),
        dataclasses.replace(candidate, overrides=(*candidate.overrides, *space.coarse)),
    )
    margin = margin_of(current, question.confidence)
    used: Margin | None = None
    for _ in range(STRICTER):
        if in_limits >= question.confidence:
            if used is not None:
                current = _narrower(question.confidence, candidate, current, centre, used, counts, folder, number)
            assert current.study is not None
            return dataclasses.replace(current, study=dataclasses.replace(current.study, objective=objective))
        used = margin
        again = _search(with_margin(first, objective, margin), counts, folder, number)
        if again.best is None and not question.counts:
            more = more_devices(counts, question.batch, space.rack)
            if more:
                counts = sorted({*counts, *more})
                again = _search(with_margin(first, objective, margin), counts, folder, number)
        if again.best is not None and not question.counts:  # a margin wants other counts than the centre
            counts = _around(question, counts, int(again.best[COUNT]), space.stages)
        if (
            space.coarse
            and again.best is not None
            and (share := share_within_limits(again, objective)) < question.confidence
        ):
            current, in_limits, margin = again, share, margin.wider
            continue
        if again.best is None or space.coarse or not {*counts} <= _counts_of(again):
            again = _search(with_margin(candidate, objective, margin), counts, folder, number)
        if again.best is None or again.study is None:
            why = f"keeps all limits in {in_limits:.0%} of the draws; with a margin of {margin.slower:.2f}: {again.why}"
            return dataclasses.replace(again, why=why)
        current, in_limits, margin = again, share_within_limits(again, objective), margin.wider
    return dataclasses.replace(centre, why=f"keeps all limits in {in_limits:.0%} of the draws, no more was found")


def _with_room(
    question: Question, candidate: Candidate, current: Candidate, space: CandidateSpace, folder: Path, number: str
) -> Candidate:
    """The best design that keeps the limits in nine of ten draws where it costs next to nothing more, else `current`.

    Devices are bought in whole boxes: many plans cost the same to a part in a thousand, and some of them have room.
    """
    if not question.confidence or current.best is None or current.study is None or current.why:
        return current
    objective, cost, counts = current.study.objective, current.best["objective"], sorted(_counts_of(current))
    in_limits = share_within_limits(current, objective)
    if in_limits >= SURE:
        return current
    margin, again, close = margin_of(current, SURE), current, True
    aside = folder / f"{number}{WIDE}"
    (folder / number).rename(aside)
    for texts in [space.coarse, ()] if space.coarse else [()]:  # all plans where a first look at some is promising
        wide = dataclasses.replace(candidate, overrides=(*candidate.overrides, *texts))
        wide = with_margin(wide, objective, margin)
        wide = dataclasses.replace(wide, overrides=(*wide.overrides, *QUIET))
        again = _search(wide, counts, folder, number) if close else again
        close = close and again.best is not None and bool(again.best["objective"] <= cost * (1 + SAME_COST))
    if close and again.study is not None and share_within_limits(again, objective) > in_limits:
        shutil.rmtree(aside)
        study = dataclasses.replace(again.study, objective=objective)
        return dataclasses.replace(again, study=study, margin=margin.text())
    shutil.rmtree(folder / number, ignore_errors=True)
    aside.rename(folder / number)
    return current


def _narrower(
    share: float,
    candidate: Candidate,
    current: Candidate,
    centre: Candidate,
    margin: Margin,
    counts: Sequence[int],
    folder: Path,
    number: str,
) -> Candidate:
    """The cheapest of designs with narrower margins that keep the limits in this share of the draws, else `current`.

    Margins on steps and on first tokens hold at once, which is more than a draw asks for, and where whole boxes are
    bought the next larger one may be twice as dear.
    """
    assert centre.best is not None
    assert centre.study is not None
    objective, low, high = centre.study.objective, Margin(1.0, 1.0), margin
    current, aside = dataclasses.replace(current, margin=margin.text()), folder / f"{number}{WIDE}"
    for _ in range(NARROWER):
        assert current.best is not None
        if current.best["objective"] <= centre.best["objective"] * (1 + NEAR_CENTRE):
            break
        middle = low.halfway(high)
        (folder / number).rename(aside)
        again = _search(with_margin(candidate, objective, middle), counts, folder, number)
        if again.best is not None and again.study is not None and share_within_limits(again, objective) >= share:
            shutil.rmtree(aside)
            current, high = dataclasses.replace(again, margin=middle.text()), middle
        else:
            shutil.rmtree(folder / number, ignore_errors=True)
            aside.rename(folder / number)
            low = middle
    return current


def _counts_of(candidate: Candidate) -> set[int]:
    """Device counts that its search chose from."""
    listed = () if candidate.study is None else candidate.study.space.plan.get("device_count", ())
    return {int(count) for count in listed}


def _search(candidate: Candidate, counts: Sequence[int], folder: Path, number: str) -> Candidate:
    """A candidate searched over these counts; what an earlier search of it left is replaced."""
    if (folder / number).exists():
        shutil.rmtree(folder / number)
    result = run_candidate(_with_counts(candidate, counts), folder, number)
    if result.best is not None and result.certificate is not None and result.certificate.best is None:
        return dataclasses.replace(result, why=NONE_IN_ALL_CASES)  # what is shown keeps them at the centre alone
    return result
