"""`codesign compare`: candidates side by side, each with a run folder of its own, a joint table and one page."""

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..config import Study
from ..config.device_counts import listed as counts_listed
from ..config.least_devices import sized_study
from ..core.atomic_files import write_text
from ..core.errors import CodesignError, ConfigError, WriteError
from ..core.free_memory import give_back
from ..report.comparison_pages import write
from ..report.side_by_side import API, Comparison, columns, sentences, shortened, without
from ..search import Mix, Pareto, Robust
from .api_prices import api_prices
from .candidates import Candidate, listed, of_folders, refuse_all, study_of
from .comparing import beside_each_other, goal_text, phases, refuse_along, refuse_api, with_designs, without_along
from .designs_table import constraints_of
from .left_files import new_folder, versions
from .optimize import check_study, run_study, trace_once
from .remarks import Explanation, devices_taken, of_column, of_plan, print_explanations, say_default, say_trace, warn
from .setup import prepare_jax
from .terminal import console

Runner = Callable[[Candidate, Path, str], Candidate]
NONE = 2  # exit code where no candidate has a design


def compare_designs(
    arguments: list[str], root: Path | str = "runs", *, explain: bool = False, api: str | None = None
) -> int:
    """Search every combination of the listed values and put the best designs side by side.

    Args:
        arguments: overrides, with lists of values.
        root: folder of run folders.
        explain: print what the columns mean.
        api: price list that is one more candidate, as `api_prices` reads it.

    Returns:
        0, or 2 where no candidate has a design.

    Raises:
        ConfigError: an override that no candidate could take, or nothing that is listed.
    """
    prepare_jax()
    overrides, along = without_along(arguments)
    prices = None if api is None else api_prices(api)
    candidates = listed(overrides, one_is_enough=prices is not None)
    refuse_along(candidates, along)
    if prices is not None:
        refuse_api(candidates)
    folder, result = run_all(candidates, Path(root))
    say_default(overrides)  # of what could be run: a refusal is one line
    taken = {devices_taken(list(one.study.overrides), one.study.space) for one in result if one.study is not None}
    for line in sorted(taken - {""}):
        _tell(f"codesign: {line}")
    levels = phases(candidates, along, _tell, prices)
    command = " ".join(["codesign compare", *map(shlex.quote, [*arguments, *(["--api", api] if api else [])])])
    joint = beside_each_other(result, along, levels, prices)
    return finish(joint, folder, command, _explained(joint, result) if explain else ())


def run_all(candidates: Sequence[Candidate], root: Path, run: Runner | None = None) -> tuple[Path, list[Candidate]]:
    """A run folder for each candidate below one of all.

    Args:
        candidates: what is compared.
        root: folder of run folders.
        run: searches one candidate into a folder below that of all, whose name it is given; `run_candidate` if none.

    Returns:
        (folder of all, candidates with their best designs or why they have none)

    Raises:
        ConfigError: no candidate is a study; nothing is left behind then.
    """
    there = root.exists()
    folder = new_folder(root, "compare_" + "_".join(candidate.label for candidate in candidates)[:60])
    result = [(run or run_candidate)(candidate, folder, str(number)) for number, candidate in enumerate(candidates)]
    try:
        refuse_all(result)
    except ConfigError:
        shutil.rmtree(folder if there else root)  # nothing half-written
        raise
    return folder, result


def finish(joint: Comparison, folder: Path, command: str, explained: Sequence[Explanation] = ()) -> int:
    """Write frames and page, and show the table with what its columns mean."""
    page = write(dated(joint, folder, command), folder)
    show(joint, console(), explained)
    console().print(f"page: {page}", highlight=False, soft_wrap=True)
    return NONE if joint.feasible.empty else 0


def joint_page(root: Path, folders: Sequence[Path]) -> None:
    """The page of a multirun's jobs side by side, where all look for one best design by one goal."""
    result = of_folders(folders)
    studies = [candidate.study for candidate in result if candidate.study is not None]
    goals = {study.objective.goal for study in studies}
    if len(result) < 2 or len(goals) != 1 or any(isinstance(study.search, Mix | Pareto) for study in studies):
        return
    page = write(dated(beside_each_other(result), root, "codesign optimize -m"), root)
    console().print(f"all jobs side by side: {page}", highlight=False, soft_wrap=True)


def dated(joint: Comparison, folder: Path, command: str) -> Comparison:
    """With what made it."""
    environment = versions()
    facts = {"command": command, "folder": str(folder), "date": environment.pop("date"), "versions": environment}
    return dataclasses.replace(joint, facts=facts)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_candidate(candidate: Candidate, root: Path, number: str) -> Candidate:
    """A candidate's own run folder; the reason there instead where it has none."""
    folder = root / number
    folder.mkdir()
    try:
        study, counted = sized_study(study_of(candidate), list(candidate.overrides))
        if counted:
            _tell(f"codesign: {candidate.label}: {counted}")
        trace_once(study)
        check_study(study)
        if isinstance(study.search, Mix):
            raise ConfigError("compare searches one workload at a time: leave out search=mix")
        warn(study.unusual)
        say_trace(study.provenance)
        write_text(folder / "job.txt", " ".join(study.overrides))
        done = run_study(study, folder, console(), alone=False)
        proof, claim = done.trace.certificate, done.trace.claim
        result = with_designs(dataclasses.replace(candidate, folder=number), study, done.results.designs, proof, claim)
        if done.interrupted:
            raise KeyboardInterrupt
    except WriteError:
        raise
    except CodesignError as error:
        result = dataclasses.replace(candidate, why=str(error))
    give_back(cycles=True)  # tables of the search hold each other, and its threads leave heaps full of holes
    if result.why:
        write_text(folder / "error.txt", f"{result.why}\n")
    if result.study is not None:
        _tell(f"{result.label}{_counts_text(result.study)}: {result.why or goal_text(result)}")
    return result


def _counts_text(study: Study) -> str:
    """` on 8, 16, 24 ... 96 devices` where the space lists them, `, with a margin`: a question has several searches."""
    counts = study.space.lists.get("device_count")
    where = f" on {counts_listed(counts.tolist())} devices" if counts is not None and len(counts) else ""
    return where + ", with a margin" * isinstance(study.search, Robust)


def _explained(joint: Comparison, candidates: Sequence[Candidate]) -> list[Explanation]:
    """Meaning of each column of the joint table, and the labels of its plans."""
    named = [("candidate", "candidate"), *((_head(joint, name), name) for name in columns(joint))]
    explanations = [of_column(head.replace("\n", " "), name, joint.words) for head, name in [*named, *LAST_COLUMNS]]
    frames = [candidate.designs for candidate in candidates if candidate.designs is not None]
    return explanations + of_plan(name for frame in frames for name in frame.columns)


def _candidates(count: int) -> str:
    return f"{count} candidate{'' if count == 1 else 's'}"


def show(comparison: Comparison, out: Console, explained: Sequence[Explanation] = ()) -> None:
    """The joint table, what its columns mean, and what it says."""
    table = Table(
        title=f"{comparison.job}: {_candidates(len(comparison.table))}", title_justify="left", header_style="bold"
    )
    shown: Sequence[str] = columns(comparison)
    table.add_column("candidate")
    for name in shown:
        table.add_column(_head(comparison, name), justify="right")
    (draws, _), (plan, _) = LAST_COLUMNS
    table.add_column(draws, justify="right")
    table.add_column(plan, min_width=24)
    for _, row in comparison.table.iterrows():
        if not row["feasible"]:
            table.add_row(row["candidate"], *("" for _ in shown), "", shortened(without(row["why"])))
            continue
        cells = list[str]()
        for name in shown:
            value, ends = comparison.text(name, row.get(name, row["objective"])), comparison.interval(row, name)
            cells.append(f"{value}\n\\[{ends}]" if ends and name == comparison.goal else value)
        wins = row.get("wins")
        share = f"{wins:.0%}" if wins is not None and wins == wins else ""
        table.add_row(
            f"{row['candidate']}" + (f"\n{row['device']}" if row.get("differs") else ""), *cells, share,
            f"{row['devices']:g} devices, {row['plan']}\n{constraints_of(row)}"
            if row["candidate"] != API else row["plan"],
        )  # fmt: skip
    out.print(table)
    if explained:
        print_explanations(out, explained)
    for line in sentences(comparison):
        out.print(line, highlight=False)
    for _, row in comparison.feasible.iterrows():
        if row.get("differs"):
            out.print(f"{row['candidate']}, {row['device']}: {row['differs']}", highlight=False)


LAST_COLUMNS = (("best in\ndraws", "wins"), ("plan,\nactive constraints", "plan, active constraints"))
HEADS = {
    "usd_per_million_tokens": "$/M {}s", "joules_per_token": "J/{}", "ttft_s": "TTFT", "tpot_s": "TPOT",
    "time_s": "step", "capex_usd": "capex", "tokens_per_s_per_device": "{}s/s\na device", "tokens_per_s": "{}s/s",
}  # fmt: skip


def _head(comparison: Comparison, name: str) -> str:
    item = (
        f"output\n{comparison.words.item}"
        if comparison.serving and name == "usd_per_million_tokens"
        else comparison.words.item
    )
    return HEADS[name].format(item) if name in HEADS else comparison.label(name)
