"""`codesign buy`: one product for several jobs over a horizon, each job a plain question of its own.

A product's cost is the sum of what each job needs of it, each the proven optimum of its own search: devices are not
shared between jobs, so that no sum is below what sharing could reach, and none above what the jobs take apart.
"""

import argparse
import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape

from ..core.atomic_files import frame_bytes, make_folder, write_files
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.units import YEAR_S
from .api_prices import ApiPrices, api_prices, usd_per_request
from .ask import QuestionAnswer, answered
from .plain_values import accelerators, number
from .questions import Question, serving_question, training_question
from .terminal import console, text_table
from .what_to_buy import MONTH_S, money, power

HORIZON = "4y"
YEARLY_COST = "objective.minimise=usd_per_million_tokens*tokens_per_s/1e6"
"""Goal of a job whose devices are kept when it has ended: dollars a second, not dollars a token."""
FRAME, QUESTION_FILE = "buy.parquet", "buy.json"
"""Table of the products, and the question with the folders of its jobs."""
BUY_OPTIONS = ("--on", "--show-config", "--devices", "--region", "--api")
"""Options that a job cannot have: the products are those of all jobs, and the demand decides the counts."""


@dataclasses.dataclass(frozen=True)
class PurchaseJob:
    """A question in words, asked of every product."""

    words: tuple[str, ...]
    options: argparse.Namespace
    question: Question


Parsed = Callable[[list[str]], argparse.Namespace]


def buy(options: argparse.Namespace, words: Sequence[str], parsed: Parsed, root: Path | str = "runs") -> int:
    """Answer `codesign buy`: the product with the least cost of all jobs over the horizon.

    Args:
        options: of the command line.
        words: of the command line, as they stand on the page.
        parsed: words of a command -> its options.
        root: folder of run folders.

    Returns:
        0, or 2 where no product does every job.

    Raises:
        ConfigError: no job, a job that cannot be read, or no length of time.
    """
    prices = api_prices(options.api) if options.api else None
    jobs = jobs_of(options, parsed)
    years = years_of(options)
    result = [answered(job.question, job.options, job.words, Path(root)) for job in jobs]
    table = costs(accelerators(options.on), names_of(jobs), [answer.joint.table for answer in result], years)
    if prices is not None:
        table = with_api(table, api_usd_per_s(prices, jobs, result), years)
    folder = result[-1].folder.parent / f"{result[-1].folder.name}_buy"
    make_folder(folder)
    said = {"command": shlex.join(words), "jobs": [answer.folder.name for answer in result]}
    write_files({folder / FRAME: frame_bytes(table), folder / QUESTION_FILE: f"{dumps(said, indent=2)}\n".encode()})
    _show(table, [shlex.join(job.words) for job in jobs], years, folder, words)
    return 0 if bool(table["feasible"].iloc[0]) else 2


def years_of(options: argparse.Namespace) -> float:
    """The horizon in years.

    Raises:
        ConfigError: no length of time.
    """
    years = number(options.horizon or HORIZON, "s", "--horizon", "4y") / YEAR_S
    if years <= 0:
        raise ConfigError(f"--horizon {options.horizon!r}: more than no time, as in 4y")
    return years


def jobs_of(options: argparse.Namespace, parsed: Parsed) -> list[PurchaseJob]:
    """The jobs of `--serve "MODEL ..."` and `--train "MODEL ..."`, read as these commands read them.

    Raises:
        ConfigError: none is given, or one cannot be read.
    """
    names = [("serve", text) for text in options.serve] + [("train", text) for text in options.train]
    if not names:
        raise ConfigError(
            'name a job: --serve "llama31_70b --rate 30/s" or --train "llama31_8b --tokens 1T --days 30d"'
        )
    jobs = list[PurchaseJob]()
    for command, text in names:
        try:
            said = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"--{command} {text!r}: {error}") from error
        if not said:
            raise ConfigError(f'--{command} "" says nothing: begin with a model')
        for word in said:
            if word.split("=")[0] in BUY_OPTIONS:
                raise ConfigError(f"--{command} {text!r}: {word} is of all jobs; say it after `codesign buy`")
        region = ["--region", options.region] if options.region else []
        one = parsed([command, *said, "--on", options.on, *region])
        one.overrides = [*options.overrides, *one.overrides]
        has_goal = any(text.lstrip("+~").startswith("objective.m") for text in one.overrides)
        if command == "train" and one.goal == "cost" and not has_goal:
            one.overrides = [YEARLY_COST, *one.overrides]
        question = (serving_question if command == "serve" else training_question)(one)
        if not question.demand:
            raise ConfigError(f"--{command} {text!r}: how much of it? add --rate 30/s")
        if len({candidate.label for candidate in question.candidates}) != len(accelerators(options.on)):
            raise ConfigError(f"--{command} {text!r}: --pools both asks for two answers; say beside or apart")
        jobs.append(PurchaseJob((command, *said), one, question))
    return jobs


def names_of(jobs: Sequence[PurchaseJob]) -> list[str]:
    """Command and model of each job."""
    return [shlex.join(job.words[:2]) for job in jobs]


def costs(products: Sequence[str], names: Sequence[str], tables: Sequence[pd.DataFrame], years: float) -> pd.DataFrame:
    """A row for each product: devices of each job, capital, cost of a month and of the horizon; the cheapest first.

    Args:
        products: accelerators.
        names: of the jobs.
        tables: candidates of each job.
        years: the horizon; what is bought is kept for all of it.
    """
    rows = list[dict[str, Any]]()
    for product in products:
        row: dict[str, Any] = {"product": product, "feasible": True, "why": ""}
        total = {"devices": 0.0, "capex_usd": 0.0, "provisioned_power_w": 0.0, "usd_per_month": 0.0}
        for number_, (name, table) in enumerate(zip(names, tables, strict=True)):
            best = table[table["varied.accelerator"] == product].iloc[0]
            if not best["feasible"]:
                row |= {"feasible": False, "why": row["why"] or f"{name}: {best['why']}"}
                continue
            per_s = float(best["usd_per_million_tokens"]) * float(best["tokens_per_s"]) / 1e6
            row |= {f"job_{number_}": name, f"devices_{number_}": float(best["devices"])}
            for key in ("devices", "capex_usd", "provisioned_power_w"):
                total[key] += float(best.get(key, np.nan))
            total["usd_per_month"] += per_s * MONTH_S
        if not row["feasible"]:
            total = dict.fromkeys(total, np.nan)
        rows.append(row | total | {"usd_over_horizon": total["usd_per_month"] * 12 * years})
    return pd.DataFrame(rows).sort_values("usd_over_horizon", kind="stable").reset_index(drop=True)


def api_usd_per_s(prices: ApiPrices, jobs: Sequence[PurchaseJob], answers: Sequence[QuestionAnswer]) -> float:
    """Dollars a second of all jobs at an API's prices; not a number where one trains or has no design to read."""
    total = 0.0
    for job, answer in zip(jobs, answers, strict=True):
        if job.words[0] != "serve" or answer.best is None:
            return np.nan
        total += job.question.requests_per_s * usd_per_request(prices, answer.best.scenario)
    return total


def with_api(table: pd.DataFrame, usd_per_s: float, years: float) -> pd.DataFrame:
    """A table of products with a row for the API, without capital and devices; its cost follows the load."""
    sold = np.isfinite(usd_per_s)
    row = {
        "product": API, "feasible": bool(sold), "why": "" if sold else "an API serves and does not train",
        "devices": 0.0 if sold else np.nan, "capex_usd": 0.0 if sold else np.nan,
        "provisioned_power_w": 0.0 if sold else np.nan, "usd_per_month": usd_per_s * MONTH_S,
        "usd_over_horizon": usd_per_s * MONTH_S * 12 * years,
    }  # fmt: skip
    row |= {name: 0.0 for name in table.columns if str(name).startswith("devices_")}
    both = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
    return both.sort_values("usd_over_horizon", kind="stable").reset_index(drop=True)


def _break_even(table: pd.DataFrame) -> str:
    """The share of the loads asked for at which the cheapest product costs what the API does."""
    feasible = table[table["feasible"]]
    hardware = feasible[feasible["product"] != API]
    if not len(hardware) or len(hardware) == len(feasible):
        return ""
    api = float(feasible.loc[feasible["product"] == API, "usd_per_month"].iloc[0])
    best = hardware.iloc[0]
    share = float(best["usd_per_month"]) / api if api > 0 else np.inf
    return (
        f"api      costs what {best['product']} does at {share:.3g} times the loads asked for; below, it is cheaper:"
        " it is paid by the request, devices are kept"
    )


def _cells(row: pd.Series, jobs: int) -> list[str]:
    """Cells of a product: devices of each job, sums, power."""
    if not row["feasible"]:
        return [str(row["product"]), *("" for _ in range(jobs)), "", "", "", "none"]
    counts = [f"{row[f'devices_{index}']:,.0f}" for index in range(jobs)]
    sums = [money(float(row[key])) if row[key] == row[key] else "rented" for key in SUMS]
    return [str(row["product"]), *counts, *sums, power(float(row["provisioned_power_w"]))]


def _show(table: pd.DataFrame, jobs: Sequence[str], years: float, folder: Path, words: Sequence[str]) -> None:
    out = console()
    counts = (f"devices,\njob {index}" for index in range(1, len(jobs) + 1))
    heads = ("product", *counts, "capital", "a month", f"over\n{years:g} years", "provisioned")
    rows = (_cells(row, len(jobs)) for _, row in table.iterrows())
    out.print(text_table(f"{len(jobs)} jobs over {years:g} years", heads, rows, left=("product",)))
    for index, job in enumerate(jobs, 1):
        out.print(f"job {index}: {escape(job)}", highlight=False, soft_wrap=True)
    for _, row in table[~table["feasible"]].iterrows():
        out.print(f"{row['product']}: {escape(str(row['why']))}", highlight=False, soft_wrap=True)
    feasible = table[table["feasible"]]
    if len(feasible):
        best = feasible.iloc[0]
        total = money(float(best["usd_over_horizon"]))
        bought = API if best["product"] == API else f"{best['devices']:,.0f} x {best['product']}"
        line = f"answer   {bought}: {total} over {years:g} years"
        if len(feasible) > 1:
            second = feasible.iloc[1]
            more = float(second["usd_over_horizon"]) / float(best["usd_over_horizon"]) - 1
            line += f"; {second['product']} comes next, {more:.0%} above"
        out.print(line, highlight=False, soft_wrap=True)
        if break_even := _break_even(table):
            out.print(break_even, highlight=False, soft_wrap=True)
        out.print("assumed  every job has devices of its own, kept over the whole horizon", highlight=False)
    else:
        out.print("no product does every job within its limits", highlight=False)
    out.print(f"codesign verify {folder}   checks the proofs of all jobs and the sums", highlight=False, soft_wrap=True)
    out.print(f"table: {folder / FRAME}   from: {shlex.join(['codesign', *words])}", highlight=False, soft_wrap=True)


API = "API"
SUMS = ("capex_usd", "usd_per_month", "usd_over_horizon")
