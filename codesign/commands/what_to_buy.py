"""The answer to a plain question: what to buy, what it costs and how sure it is, as lines and as a slide."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..config.consistency import box_of
from ..core.interval_text import load_text
from ..core.units import DAY_S, YEAR_S
from ..model.metrics import ScenarioEvaluation
from ..model.ownership import Cloud
from ..model.scenario import Scenario
from ..model.workloads import Training
from ..report.comparison_figures import AnswerSlide
from ..report.side_by_side import Comparison, price_sentences, sentences, space_sentences
from ..study.objective import Objective, feasible
from ..uncertainty.draws import COUNT, draw_doubts
from ..uncertainty.metrics import LOAD, at_centre, over_the_load, under_draws
from .candidates import Candidate
from .questions import Question

# Limits kept with a stated chance: margins on speed, widened until the best design keeps them in that share of draws.
#
# A draw multiplies the model's predictions by errors that were measured of them. What slows steps down is one factor
# to a search: the limits have to hold at the centre and with all kernels so much slower, which `search=robust`
# proves. First tokens err once more, by a factor that their limits fall by. A margin that is enough may be too wide:
# narrower ones are tried where the design costs more than that of the centre. The design is the proven best with these
# margins; that none cheaper keeps the limits with the same chance is not proven.


SLOWER = "workload.kernel_slowdown"
FIRST = ("ttft_", "e2e_")
WIDER = 0.5  # of a margin's logarithm, by which it grows where too few draws keep the limits


class Margin(NamedTuple):
    """Factors by which kernels are slower, and first tokens later, than at the centre."""

    slower: float
    later: float

    @property
    def wider(self) -> "Margin":
        """The next margin to try."""
        return Margin(*(max(value, 1.02) ** (1 + WIDER) for value in self))

    def halfway(self, other: "Margin") -> "Margin":
        """Halfway to another margin, in logarithms."""
        return Margin(*(math.sqrt(a * b) for a, b in zip(self, other, strict=True)))

    def text(self) -> str:
        """The margin in words."""
        return f"with steps {self.slower:.2f} times slower and first tokens {self.later:.2f} times later"


def share_within_limits(candidate: Candidate, objective: Objective, seed: int = 0, count: int = COUNT) -> float:
    """Share of the draws in which a candidate's best design keeps these limits, and whatever a design must keep.

    Args:
        candidate: searched.
        objective: the limits.
        seed: of the draws; a search with a chance is made on those of seed 0.
        count: of draws.
    """

    def outputs(account: ScenarioEvaluation) -> dict[str, Any]:
        return {" ": objective.excess(account.metrics)}

    return float(
        np.mean(np.asarray(feasible(under_draws([candidate.scenario], outputs, count, seed)[" "][0]), dtype=bool))
    )


def margin_of(candidate: Candidate, share: float) -> Margin:
    """A margin to begin with: how much slower a step is, and how much later a first token, than the headline in draws.

    Args:
        candidate: searched.
        share: of the draws that the margin covers.
    """
    assert candidate.best is not None

    def outputs(account: ScenarioEvaluation) -> dict[str, Any]:
        load = over_the_load(account.metrics)
        return {" ": load.get(LOAD, account.metrics.time_s)}

    level = under_draws([candidate.scenario], outputs)[" "][0]
    centre = at_centre(candidate.scenario, outputs)[" "]
    later = np.asarray(draw_doubts(candidate.scenario).first_token)
    return Margin(max(1.0, float(np.quantile(level, share)) / centre), max(1.0, float(np.quantile(later, share))))


def with_margin(candidate: Candidate, objective: Objective, margin: Margin) -> Candidate:
    """The candidate's study with the limits kept at the centre and with this margin."""
    rest = [text for text in candidate.overrides if not _of_search(text)]
    slower = f"{{_target_: codesign.search.Uncertain, path: {SLOWER}, factors: [1.0, {margin.slower!r}]}}"
    limits = [
        f"++objective.limits.{name}={(limit / margin.later if name.startswith(FIRST) else limit)!r}"
        for name, limit in objective.limits.items()
    ]
    search = ("search=robust", "~search.cases.uncertain.accelerator_price", f"++search.cases.uncertain.slower={slower}")
    return dataclasses.replace(candidate, overrides=(*search, *rest, *limits, "search.aggregate=sum"))


def _of_search(text: str) -> bool:
    return text.lstrip("+~").startswith(("search=", "search.", "objective.limits."))


MONTH_S = YEAR_S / 12
SURE = 0.9
OTHERS = 2000  # draws that a search did not see
NONE = "no design keeps all limits: each row says what is short"


@dataclass(frozen=True)
class Purchase:
    """The best design in the numbers that a buyer asks for.

    devices of the name `device`, sold in boxes of `box`; month_usd and life_usd: all costs of a month and of
    `life_years`; capital_usd: price, nan of what is rented; power_w: provisioned; days and job_usd: of a job that ends,
    nan otherwise; busy: mean slot utilisation of serving, nan otherwise; keeps: share of the draws of errors
    in which all limits are kept, nan where there are none; keeps_others: in draws that no search saw, nan where none
    looked for a chance; cost: of a million tokens in words; plan in words.
    """

    candidate: str
    device: str
    devices: int
    box: int
    month_usd: float
    life_years: float
    capital_usd: float
    power_w: float
    cost: str
    plan: str
    days: float = math.nan
    allowed_days: float = math.nan
    job_usd: float = math.nan
    busy: float = math.nan
    keeps: float = math.nan
    keeps_others: float = math.nan
    certified: bool = False

    @property
    def life_usd(self) -> float:
        """All costs of its life."""
        return self.month_usd * 12 * self.life_years

    @property
    def bought(self) -> str:
        """`24 x b200 (3 boxes of 8)`."""
        boxes = self.devices // self.box
        text = f" ({boxes:,} box{'es' if boxes > 1 else ''} of {self.box})" if 1 < self.box <= self.devices else ""
        return f"{self.devices:,} x {self.device}{text}"

    @property
    def spare(self) -> str:
        """N+1 in words: one more box, or the unused rest of the only box."""
        if self.devices < self.box:
            return f"a part of a box of {self.box}: the whole box leaves {self.box - self.devices} spare"
        unit = f"box of {self.box}" if self.box > 1 else "device"
        more = f"about {self.box / self.devices:.0%} more capital"
        return f"one spare {unit} (N+1): {self.devices + self.box:,} devices, {more}"


def answer_of(question: Question, joint: Comparison, candidates: Sequence[Candidate]) -> Purchase | None:
    """The best candidate's answer; None where no candidate has a design."""
    if joint.feasible.empty:
        return None
    row = joint.feasible.iloc[0]
    best = next(candidate for candidate in candidates if candidate.label == row["candidate"])
    assert best.best is not None
    assert best.study is not None
    scenario = best.scenario
    per_s = float(row["usd_per_million_tokens"]) * float(row["tokens_per_s"]) / 1e6
    rented = isinstance(scenario.cluster.facility.ownership, Cloud)
    days = job = math.nan
    if question.seconds:
        steps = question.tokens_per_s * question.seconds / _step_tokens(scenario)
        took = float(row["time_s"]) * steps
        days, job = took / DAY_S, per_s * took
    has_limits = bool(best.study.objective.limits) or question.requests_per_s > 0
    limited = has_limits and joint.table["keeps"].notna().any() if "keeps" in row else False
    return Purchase(
        str(row["candidate"]), str(row["device"]), int(row["devices"]), _box(scenario), per_s * MONTH_S,
        float(scenario.cluster.facility.amortisation_s) / YEAR_S, math.nan if rented else float(row["capex_usd"]),
        float(row["provisioned_power_w"]), joint.text("usd_per_million_tokens", row["usd_per_million_tokens"]),
        str(row["plan"]), days, question.seconds / DAY_S, job, float(best.best.get("slot_utilisation", math.nan)),
        float(row["keeps"]) if limited else math.nan,
        share_within_limits(best, best.study.objective, seed=1, count=OTHERS)
        if limited and question.confidence
        else math.nan,
        bool(row["certified"]),
    )  # fmt: skip


def answer_lines(question: Question, answer: Purchase | None) -> list[str]:
    """The answer in words: devices to buy, cost, power, utilisation, a spare, and the chance of keeping the limits."""
    if answer is None:
        return [NONE]
    capital = "" if math.isnan(answer.capital_usd) else f", {money(answer.capital_usd)} to buy"
    lines = [
        f"answer   {answer.bought}: {money(answer.month_usd)} a month{capital}, {power(answer.power_w)} provisioned"
    ]
    if not math.isnan(answer.days):
        done = f"done in {answer.days:.3g} of {answer.allowed_days:g} days, for {money(answer.job_usd)}"
        lines.append(f"{'':8s} {done}")
    if not math.isnan(answer.busy):
        lines.append(f"{'':8s} mean slot utilisation {answer.busy:.0%}")
    lines.append(f"{'':8s} {answer.spare}")
    lines += [f"{'':8s} {sentence}" for sentence in _confidence_lines(question, answer)]
    return lines


def _confidence_lines(question: Question, answer: Purchase) -> list[str]:
    if math.isnan(answer.keeps):
        return []
    limits = any("objective.limits." in text for one in question.candidates for text in one.overrides)
    sentence = "keeps all limits" if limits or not question.requests_per_s else "sustains its load"
    sentence += f" in {answer.keeps:.0%} of the draws of the model's errors"
    if question.confidence:
        sentence += f" ({answer.keeps_others:.0%} of {OTHERS:,} others), where at least {question.confidence:.0%}"
        sentence += " were asked for"
    if answer.keeps < SURE and question.confidence < SURE:
        sentence += "; --confidence 0.9 asks for nine of ten"
    return [sentence]


def slide_of(question: Question, joint: Comparison, answer: Purchase) -> AnswerSlide:
    """The answer on one page."""
    rented = math.isnan(answer.capital_usd)
    life = f"over {answer.life_years:.3g} years" if not rented else "a year"
    facts = [
        (f"{answer.devices:,}", _counted(answer)),
        (money(answer.month_usd), "a month, all costs"),
        (money(answer.life_usd if not rented else 12 * answer.month_usd), life),
        *([] if rented else [(money(answer.capital_usd), "to buy")]),
        (power(answer.power_w), "provisioned"),
        (answer.cost, "a million output tokens" if joint.serving else "a million tokens"),
        *([] if math.isnan(answer.days) else [(f"{answer.days:.3g} days", f"of {answer.allowed_days:g}")]),
        *([(f"+{answer.box}", "spare, N+1")] if answer.devices >= answer.box else []),
    ]
    others = tuple(f"{name}: " for name in joint.feasible["candidate"])  # doubts of each stand in the table
    said = [text for text in sentences(joint) if text not in price_sentences(joint) and not text.startswith(others)]
    spaces = space_sentences(joint)
    of_answer = [text for text in spaces if text.startswith(f"{answer.candidate}: ")]
    listed = ["No listed plan and count does better: the bound is proven by the search."] if answer.certified else []
    proof = [
        f"{text[:1].upper()}{text[1:]}" for text in (one.removeprefix(f"{answer.candidate}: ") for one in of_answer)
    ] or listed
    row = joint.feasible.iloc[0]
    doubt = load_text(dict(row))
    interval = joint.interval(row, joint.goal)
    risk = [
        *([f"90 % interval of {joint.label(joint.goal)[:1].lower() + joint.label(joint.goal)[1:]}: {interval}."]
          if interval else []),
        *(f"{answer.candidate} {sentence}." for sentence in _confidence_lines(question, answer)),
        *([doubt] if doubt else []),
    ]  # fmt: skip
    return AnswerSlide(
        question.text[:1].upper() + question.text[1:], f"{'Rent' if rented else 'Buy'} {answer.bought}", tuple(facts),
        (*said, f"Plan: {answer.plan}.", *proof), tuple(risk), tuple(price_sentences(joint)),
        tuple(what for what, _ in question.assumed),
        f"{joint.facts.get('date', '')}  {joint.facts.get('command', '')}".strip(),
    )  # fmt: skip


def _counted(answer: Purchase) -> str:
    """`devices, 3 boxes`."""
    boxes = answer.devices // answer.box if answer.box > 1 else 0
    return f"device{'s' if answer.devices > 1 else ''}" + (f", {boxes} box{'es' if boxes > 1 else ''}" if boxes else "")


def _step_tokens(scenario: Scenario) -> float:
    workload = scenario.workload
    assert isinstance(workload, Training)
    return float(workload.global_batch) * float(workload.sequence)


def _box(scenario: Scenario) -> int:
    """Devices of a box that they are bought in."""
    cluster = scenario.cluster
    return int(box_of(cluster.network[cluster.levels[0]].fabric)) if len(cluster.levels) > 1 else 1


def money(value: float) -> str:
    """Dollars in three digits: `$1.23 M`."""
    return f"${_short(value)}".rstrip()


def power(value: float) -> str:
    """Watts in three digits: `1.23 MW`."""
    return f"{_short(value)}W"


def _short(value: float) -> str:
    """A sum of money or a power in three digits: `1.23 M`."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} "
