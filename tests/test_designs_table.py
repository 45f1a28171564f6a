"""The table that `codesign optimize` prints, and what pictures of a run say above them."""

import dataclasses
import io

import pytest
from example_run import example_designs, write_run
from rich.console import Console

from codesign.commands.designs_table import ShownColumn, designs_table, fitting
from codesign.report import read_run
from codesign.report.findings import SENTENCES, found
from codesign.search.certificate import Certificate


def printed(width: int, *, serving: bool = False, **more) -> list[str]:
    """Lines of the table of six designs in a terminal so wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    console.print(designs_table(example_designs(serving), "designs", 6, width=width, **more))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("serving", [False, True])
@pytest.mark.parametrize("width", [80, 100, 160])
def test_every_design_has_a_row_with_its_price_within_the_terminal(width, serving):
    lines = printed(width, serving=serving)
    assert max(map(len, lines)) <= width
    frame = example_designs(serving).head(6)
    rows = [line for line in lines if line[:1].isdigit()]
    assert [int(line.split()[0]) for line in rows] == list(frame["rank"])
    for line, cost in zip(rows, frame["usd_per_million_tokens"], strict=True):
        assert f"{cost:.4g}" in line


def test_what_has_no_room_is_named():
    narrow, wide = " ".join(printed(80)), " ".join(printed(300))
    assert "no room here for" in narrow
    assert "active constraints" in narrow
    assert "no room" not in wide


def test_what_serving_is_paid_for_are_tokens_that_come_out():
    assert "output" in " ".join(printed(160, serving=True)[:4])
    assert "output" not in " ".join(printed(160)[:4])


def test_hardware_is_in_absolute_numbers():
    lines = printed(160, hardware={"HBM capacity": [f"{80 + at} GB" for at in range(6)]})
    assert all(any(f"{80 + at} GB" in line for line in lines) for at in range(6))
    assert "HBM:DDR" not in " ".join(lines)


def test_the_sooner_wanted_stay():
    columns = [ShownColumn("a", ["1234567"], 0), ShownColumn("b", ["1234567"], 2), ShownColumn("c", ["1234567"], 1)]
    taken, rest = fitting(columns, 18)
    assert ([one.head for one in taken], [one.head for one in rest]) == (["a", "c"], ["b"])


@pytest.mark.parametrize("serving", [False, True])
def test_every_picture_of_a_run_states_what_it_shows(tmp_path, serving):
    from codesign.report import drawing, figures

    run = read_run(write_run(tmp_path / "run", serving))
    for name in set(SENTENCES) - {"convergence"}:
        with drawing.style():
            figure = found(getattr(figures, name)(run), name, run)
        told = figure._suptitle.get_text()  # pyright: ignore
        assert any(letter.isdigit() for letter in told), name
        assert "nan" not in told


@pytest.mark.parametrize(
    ("sense", "history", "goes"),
    [
        ("minimise", ((0.0, 4.0, 1.0), (1.0, 2.0, 1.9)), ("best design falls", "bound on every design rises")),
        ("maximise", ((0.0, 1.0, 4.0), (1.0, 1.9, 2.0)), ("best design rises", "bound on every design falls")),
    ],
)
def test_how_a_proof_closed_is_told_in_the_sense_of_its_goal(tmp_path, sense, history, goes):
    proven = Certificate(
        certified=True, convex=True, goal="tokens_per_s", sense=sense, best=history[-1][1], bound=history[-1][2],
        history=history,
    )  # fmt: skip
    run = read_run(write_run(tmp_path / "run"))
    run = dataclasses.replace(run, summary=run.summary | {"certificate": proven.as_plain()})
    told = SENTENCES["convergence"](run)
    assert all(part in told for part in goes), told
    assert f"{100 * abs(history[-1][1] / history[-1][2] - 1):.2g} % lie between them" in told
