"""What is verified is what is read: folders changed by hand are refused in one line, whichever file was changed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.commands.optimize import optimize
from qa.tamper import AS_IS, CHANGES, EVERY, LISTED, STUDIES, once, sums_anew, unchecked, verified

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One run with a proof of six variables and eight plans or so."""
    root = tmp_path_factory.mktemp("runs")
    with once():
        assert optimize([*STUDIES["certified"], "name=small"], root) == 0
        yield next(root.iterdir())


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(honest, tmp_path / "run"))


def edit(folder: Path, name: str, change) -> None:
    """Change the tree of a JSON file."""
    tree = json.loads((folder / name).read_text(encoding="utf-8"))
    change(tree)
    (folder / name).write_text(json.dumps(tree, indent=2), encoding="utf-8")


def frame(folder: Path, name: str, change) -> None:
    """Change a table."""
    table = pd.read_parquet(folder / f"{name}.parquet")
    change(table).to_parquet(folder / f"{name}.parquet", index=False)


def refused(folder: Path, *words: str, mode: str = EVERY) -> None:
    sums_anew(folder, mode)
    result, text = verified(folder)
    assert result == "refused", text[-400:]
    line = text.strip().splitlines()[-1]
    assert line.startswith(("not verified: ", "codesign: ")), text[-400:]
    for word in words:
        assert word in " ".join(text.split()), text[-400:]


def test_what_the_run_wrote_is_verified_and_what_was_checked_is_said(honest: Path):
    result, text = verified(honest)
    assert result == "accepted", text[-600:]
    for words in (
        "files are what the run wrote, by their checksums", "config.yaml is what", "frames priced anew",
        "summary.json: ", "report.html says what these files give", "verified: no time_s below",
    ):  # fmt: skip
        assert words in text
    assert {"versions.json", "certificate.took", "summary.seconds.certified"} <= set(unchecked(text))


def test_an_objective_below_the_bound_in_another_row_than_the_first(run: Path):
    def lower(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[1, "objective"] *= 0.5
        return table

    frame(run, "designs", lower)
    refused(run, "designs.parquet: row 1: objective is")


def test_a_capex_that_the_design_does_not_have(run: Path):
    def cheaper(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[0, "capex_usd"] *= 1 + 1e-9
        return table

    frame(run, "designs", cheaper)
    refused(run, "designs.parquet: row 0: capex_usd is")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("claim", "certified: proven within 0.0001 % of the optimum", "summary.json: claim is"),
        ("counts.plans", 10**6, "summary.json: claim is"),
        ("counts.open", 3, "counts.open is 3"),
        ("limits.capex_usd", 57e6, "summary.json: limits.capex_usd is"),
        ("certificate.certified", False, "summary.json: claim is"),
        ("certificate.constraints.0.used", 0.5, "is used to"),
        ("words.job", "serving", "summary.json: words.job"),
        ("regret.stays", 1.0 - 1e-9, "summary.json: regret"),
    ],
)
def test_the_summary(run: Path, place: str, value, words: str):
    def change(tree: dict) -> None:
        *path, last = [int(key) if key.isdigit() else key for key in place.split(".")]
        for key in path:
            tree = tree[key]
        tree[last] = value

    edit(run, "summary.json", change)
    refused(run, words)


def test_overrides_that_compose_another_study(run: Path):
    with (run / "overrides.txt").open("a") as file:
        file.write("objective.limits.capex_usd=50e6\n")
    refused(run, "config.yaml: objective.limits.capex_usd is", "overrides.txt composes")


def test_a_gap_that_was_not_asked_for_or_not_reached(run: Path):
    config = (run / "config.yaml").read_text()
    assert "gap: 0.001" in config
    (run / "config.yaml").write_text(config.replace("gap: 0.001", "gap: 0.01"))
    refused(run, "config.yaml: search.gap is 0.01, overrides.txt composes is 0.001")
    (run / "config.yaml").write_text(config.replace("gap: 0.001", "gap: 1.0e-12"))
    with (run / "overrides.txt").open("a") as file:
        file.write("search.gap=1e-12\n")
    refused(run, "certified at a gap of")


def test_a_bound_raised_a_little_in_every_file(run: Path):
    rng = np.random.default_rng(1)
    kept = {name: (run / name).read_bytes() for name in ("summary.json", "certificate/certificate.json")}
    for _ in range(4):
        assert CHANGES["a bound raised everywhere"](run, rng)
        refused(run)
        for name, data in kept.items():
            (run / name).write_bytes(data)


def test_numbers_of_the_nodes(run: Path):
    def renumbered(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(number=table["number"] + 1)

    frame(run, "certificate/nodes", renumbered)
    refused(run, "nodes.parquet", mode=LISTED)
    refused(run, "the nodes are not numbered as they stand")


def test_without_its_checksums_a_folder_is_not_verified_but_shown(run: Path):
    (run / "written.json").unlink()
    refused(run, "not verified: written.json is missing", "run it again to have it verified", mode=AS_IS)
    assert main(["report", str(run)]) == 0


@pytest.mark.parametrize("name", ["page.html", "report"])
def test_a_page_of_another_name(run: Path, name: str):
    (run / "report.html").rename(run / name)
    edit(run, "written.json", lambda tree: tree.update({name: tree.pop("report.html")}))
    refused(run, f"{name} is no file that a run writes: its page is report.html")


def test_a_folder_whose_checksums_leave_out_the_certificate_is_not_verified(run: Path):
    """As releases wrote them that noted no more than the frames."""
    edit(run, "written.json", lambda tree: [tree.pop(name) for name in list(tree) if name.startswith("certificate/")])
    refused(run, "as an earlier release left it", mode=AS_IS)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("certificate/certificate.json", "claim", ["a list"]),
        ("certificate/certificate.json", "views", 3),
        ("certificate/certificate.json", "plan", {"tp": "eight"}),
        ("certificate/certificate.json", "counts", {"nodes": [1]}),
        ("certificate/certificate.json", "took", {"wall_s": "long"}),
        ("summary.json", "counts", {"plans": "many"}),
        ("summary.json", "certificate", {"goal": 3, "best": "good"}),
        ("summary.json", "seconds", None),
    ],
)
def test_damaged_fields_are_a_line(run: Path, name: str, place: str, value):
    edit(run, name, lambda tree: tree.update({place: value}))
    sums_anew(run, LISTED)
    result, text = verified(run)
    assert result == ("accepted" if place == "took" else "refused"), text[-400:]
    assert text.strip().splitlines()[-1].startswith(("not verified: ", "codesign: ", "verified: "))


def test_damaged_fields_are_a_line_where_a_page_is_built(run: Path, capsys: pytest.CaptureFixture[str]):
    def feasible_by_word(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(feasible="yes")

    frame(run, "designs", feasible_by_word)
    edit(run, "summary.json", lambda tree: tree.update(limits={"capex_usd": "much"}))
    sums_anew(run, LISTED)
    assert main(["report", str(run)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "has a damaged field" in lines[0]


@pytest.mark.parametrize("kind", ["a number of report.html", "a column of words", "a column more"])
def test_changes_by_chance(run: Path, kind: str):
    assert CHANGES[kind](run, np.random.default_rng(7))
    refused(run, mode=LISTED)
