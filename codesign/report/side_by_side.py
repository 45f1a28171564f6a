"""Candidates side by side: the joint table, and what it says in sentences."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..core.interval_text import between_text, load_text
from ..core.pretty import html_table, lines_text
from ..core.units import percent
from ..model.workloads.base import OTHERS, FamilyVocabulary
from .labels import DASH, THIN, metric

METRICS = (
    "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "energy_j", "joules_per_token", "usd_per_million_tokens",
    "capex_usd", "power_w", "provisioned_power_w",
)  # fmt: skip
"""Metrics that are kept of each candidate's best design."""

API = "API"
"""Name of the candidate that is a price list."""

SAMPLED = re.compile(r"too many to bound; ([\d,]+) plans were searched")
"""End of the claim of a search that could list some of the plans alone."""
EXACT = 1e-5
"""Gap up to which a design is called the best: a thousandth of a percent, less than a printed price shows."""
SHORT_REASON = 150  # characters of why there is no design, on a terminal


@dataclass(frozen=True)
class Comparison:
    """Candidates side by side, best first.

    table: a row for each candidate: its metrics with the ends of their 90 % intervals (`_low`, `_high`), `wins` (share
    of joint draws of the model's errors in which its goal is the best), `keeps` (share in which it keeps all limits),
    what binds, bound and gap; of one without a design `why`. phases: a row for each candidate and level of what was
    varied `along`. prices: who is best if prices were others (`commands.comparing`). goal: the metric compared;
    maximised: whether more of it is better. job: what is compared for.
    """

    table: pd.DataFrame
    goal: str
    maximised: bool = False
    job: str = ""
    words: FamilyVocabulary = OTHERS
    along: str = ""
    phases: pd.DataFrame = field(default_factory=pd.DataFrame)
    prices: pd.DataFrame = field(default_factory=pd.DataFrame)
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        """The candidates in order, with the goal and its interval."""
        rows = [(str(row["candidate"]), ", ".join(self._value(row))) for _, row in self.feasible.iterrows()]
        rows += [(str(row["candidate"]), str(row["why"])) for _, row in self._without_design.iterrows()]
        return lines_text(f"Comparison({self.goal}; table, phases, prices)", rows)

    def _value(self, row: Any) -> list[str]:
        """Goal of a candidate, and its interval where it has one."""
        interval = self.interval(row, self.goal)
        return [self.text(self.goal, row["objective"]), *([f"90 % {interval}"] if interval else [])]

    def _repr_html_(self) -> str:
        """The table of candidates, a column for each metric that is compared."""
        names = [name for name in columns(self) if name != self.goal]
        head = ("", self.label(self.goal), *(self.label(name) for name in names))
        rows = [
            (str(row["candidate"]), ", ".join(self._value(row)), *(self.text(name, row[name]) for name in names))
            for _, row in self.feasible.iterrows()
        ]
        rows += [(str(row["candidate"]), str(row["why"])) for _, row in self._without_design.iterrows()]
        return html_table(self.job or "Comparison", rows, head)

    @property
    def feasible(self) -> pd.DataFrame:
        """The candidates that have a design."""
        return self.table[self.table["feasible"]]

    @property
    def _without_design(self) -> pd.DataFrame:
        return self.table[~self.table["feasible"].astype(bool)]

    @property
    def serving(self) -> bool:
        """True if requests are served."""
        return "tpot_s" in self.table and bool(self.table["tpot_s"].notna().any())

    def label(self, name: str) -> str:
        """A metric in words; what serving is paid for are tokens that come out."""
        result = metric(name, self.words).label
        paid = self.serving and name == "usd_per_million_tokens" and "output" not in result
        return result.replace("tokens", "output tokens") if paid else result

    def text(self, name: str, value: Any) -> str:
        """A metric's value with its unit."""
        return metric(name, self.words).text(value).replace(THIN, " ")

    def interval(self, row: Any, name: str) -> str:
        """`2.46 to 9.58` with the unit; empty where there is none."""
        low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
        return between_text(low, high, lambda end: self.text(name, end))


def sentences(comparison: Comparison) -> list[str]:
    """Sentences on the table: the best and the next, how sure that is, who is not in it."""
    ranked = comparison.feasible
    lines: list[str] = []
    if ranked.empty:
        none = f"None of the {len(comparison.table)} candidates has a design: {_reasons(comparison)}"
        return [none, *_impossible(comparison)]
    best, least = ranked.iloc[0], "most" if comparison.maximised else "least"
    goal = comparison.label(comparison.goal)
    goal = goal if goal[:2].isupper() else goal[:1].lower() + goal[1:]
    line = f"{best['candidate']} has the {least} {goal}, {comparison.text(comparison.goal, best['objective'])}"
    if len(ranked) > 1:
        second = ranked.iloc[1]
        away = abs(second["objective"] / best["objective"] - 1)
        line += f"; {second['candidate']} comes next, {away:.0%} {'below' if comparison.maximised else 'above'}"
    lines.append(line + ".")
    if "wins" in ranked and len(ranked) > 1 and ranked["wins"].notna().any():
        order = ranked.sort_values("wins", ascending=False, kind="stable")
        shares = [f"{row['candidate']} in {row['wins']:.0%}" for _, row in order.iterrows() if row["wins"] >= 0.005]
        line = f"Under joint draws of the model's errors the best is {', '.join(shares)} of them"
        keeps = float(best.get("keeps", 1.0))
        line += f"; {best['candidate']} keeps all limits in {keeps:.0%}" if keeps < 1 else ""
        lines.append(line + ".")
    lines += api_sentences(comparison)
    doubts = [(row["candidate"], load_text(dict(row))) for _, row in ranked.iterrows()]
    lines += [f"{name}: {doubt}" for name, doubt in doubts if doubt]
    modified = [row["device"] for _, row in ranked.iterrows() if row.get("differs")]
    if modified:
        lines.append(f"Not catalogue products: {', '.join(dict.fromkeys(modified))}.")
    if len(ranked) < len(comparison.table):
        lines.append(f"Without a design: {_reasons(comparison)}")
    return lines + space_sentences(comparison) + price_sentences(comparison) + turning_points(comparison)


def api_sentences(comparison: Comparison) -> list[str]:
    """Sentences on a price list among the candidates: up to which load it is cheaper, what it does not say."""
    ranked = comparison.feasible
    owned, listed = ranked[ranked["candidate"] != API], ranked[ranked["candidate"] == API]
    if owned.empty or listed.empty:
        return []
    best, api = owned.iloc[0], float(listed.iloc[0]["objective"])
    lines = ["An API is paid by the request, a fleet by the hour; how fast the API answers is not known."]
    if api > best["objective"]:
        share = float(best["objective"]) / api
        lines[0] = f"Below {share:.0%} of the load that {best['candidate']} serves here the API is cheaper. {lines[0]}"
    return lines


def space_sentences(comparison: Comparison) -> list[str]:
    """Space that was searched for each candidate with a design, and whether nothing better in it is proven.

    Where limits were kept with a margin, for a chance of keeping them, the proof is of designs that keep the margin.
    """
    if "space" not in comparison.table:
        return []
    named = comparison.feasible[comparison.feasible["space"].fillna("") != ""]
    result: list[str] = []
    for _, row in named.iterrows():
        margin, proven = str(row.get("margin") or ""), _proven_words(row)
        if margin and row["certified"]:
            beginning = f"{proven} that keeps the limits {margin}, of"
            text = f"{beginning} {row['space']}; a cheaper one may keep them in as many draws"
        else:
            searched = SAMPLED.search(str(row.get("claim") or ""))
            looked = f"without proof, {searched[1]} plans were searched of" if searched else "looked at, without proof:"
            text = f"{f'{proven} of' if row['certified'] else looked} {row['space']}"
        result.append(f"{row['candidate']}: {text}.")
    return result + _impossible(comparison)


def _proven_words(row: pd.Series) -> str:
    """Proof of a row with a certificate: the gap, where it is more than rounding."""
    gap = float(row.get("gap", 0.0))
    return f"proven within {percent(gap)} of the best" if gap > EXACT else "proven the best"


def _impossible(comparison: Comparison) -> list[str]:
    """Space of each candidate that has no design, where that is proven of the limits as they were asked for."""
    table = comparison.table[~comparison.table["feasible"].astype(bool)]
    if not {"space", "certified", "overrides"} <= {*table.columns}:
        return []
    proven = table[table["certified"].fillna(False).astype(bool) & (table["space"].fillna("") != "")]
    return [
        f"{row['candidate']}: proven that none keeps all limits of {row['space']}."
        for _, row in proven.iterrows()
        if "search=robust" not in str(row["overrides"])  # which asks for more than the limits
    ]


def price_sentences(comparison: Comparison) -> list[str]:
    """One sentence on what another price would change."""
    if comparison.prices.empty:
        return []
    best, last = str(comparison.feasible["candidate"].iloc[0]), comparison.prices.iloc[-1]
    shared = comparison.prices.iloc[:-1]
    others = shared[shared["best"] != best]
    words = [f"{row['best']} is best with {row['factor']:g} times {row['what']}" for _, row in others.iterrows()]
    named = list(dict.fromkeys(shared["what"]))
    if named and not words:
        words = [f"{best} stays the best with {_listed(named)} halved or doubled"]
    if math.isfinite(last["factor"]):
        words.append(f"{last['best']} is as good once {last['what']} is {last['factor']:.2f} times what it is")
    return [f"{'; '.join(words)}."] if words else []


def _listed(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _reasons(comparison: Comparison) -> str:
    out = comparison.table[~comparison.table["feasible"]]
    return "; ".join(f"{row['candidate']} ({shortened(row['why'])})" for _, row in out.iterrows()) + "."


def without(reason: str) -> str:
    """Sentence on why a candidate is missing from a comparison."""
    return reason[:1].upper() + reason[1:] if reason.startswith("no design") else f"No design: {reason}"


def shortened(text: str) -> str:
    """So much of a reason that a table still has room."""
    return text if len(text) <= SHORT_REASON else text[:SHORT_REASON].rsplit(" ", 1)[0] + " ..."


def winners(comparison: Comparison) -> list[tuple[str, str]]:
    """(level, best candidate) along what was varied; a dash where nothing has a design."""
    lines: list[tuple[str, str]] = []
    for level, rows in comparison.phases.groupby("level", sort=False) if not comparison.phases.empty else ():
        rows = rows[rows["feasible"]]
        if rows.empty:
            lines.append((str(level), DASH))
            continue
        order = rows.sort_values("objective", ascending=not comparison.maximised, kind="stable")
        lines.append((str(level), str(order["candidate"].iloc[0])))
    return lines


def turning_points(comparison: Comparison) -> list[str]:
    """One sentence on where the best candidate changes along what was varied."""
    best_by_level = winners(comparison)
    if not best_by_level:
        return []
    runs: list[list[str]] = []
    for level, name in best_by_level:
        if not runs or runs[-1][0] != name:
            runs.append([name])
        runs[-1].append(level)
    parts = [f"{name if name != DASH else 'none has a design'} at {_levels(levels)}" for name, *levels in runs]
    return [f"Along {comparison.along}: {', '.join(parts)}."]


def _levels(levels: list[str]) -> str:
    return levels[0] if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"


def columns(comparison: Comparison) -> tuple[str, ...]:
    """Metrics that the table shows beside the goal."""
    times = ("ttft_s", "tpot_s") if comparison.serving else ("time_s",)
    shown = ("usd_per_million_tokens", "joules_per_token", *times, "tokens_per_s_per_device", "capex_usd")
    return (comparison.goal, *(name for name in shown if name != comparison.goal and name in comparison.table))
