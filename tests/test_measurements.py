"""Tables of measurements: chosen by their columns, read by one checked reader; whatever is damaged is one line.

`tests/data/tables/` holds a small made-up table of every kind. Each is damaged in hundreds of ways, seeded: no damage
may end in anything but a DataError of one line, or be taken silently.
"""

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.core.errors import DataError
from codesign.evidence.measurements import SCHEMAS, Schema, survey, unread
from codesign.evidence.measurements import schema as checked_reader
from codesign.evidence.measurements.schema import Column, choose
from codesign.evidence.validation import validate
from codesign.evidence.validation.measured_kernels import UNFITTED

TABLES = Path(__file__).parent / "data" / "tables"
EACH = 300  # ways in which the tables of one suite are damaged together

Cells = list[list[str]]
Damage = tuple[str, bytes]
NO_NUMBER = ("abc", "nan", "inf", "-inf", "1e400", "-5", "1,5", "0x10", "1_000", "\u0661\u0662", "--3", "1e", "True",
             "1e18", "3 4", "NULL", "=A1", "4096;")  # fmt: skip
NO_NAME = ("\x07bell", "blank ", " blank", "\ufffd", "two\nlines")
NO_FLAG = ("yes", "2", "", "truth")


def text_of(cells: Cells) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(cells)
    return stream.getvalue().encode()


def table_of(schema: Schema) -> Cells:
    with (TABLES / f"{schema.name}.csv").open(encoding="utf-8", newline="") as handle:
        return list(csv.reader(handle))


def bad_values(column: Column) -> Iterator[str]:
    """What a cell may not hold."""
    if column.kind == "flag":
        yield from NO_FLAG
        return
    if not column.blank:
        yield from ("", "  ")
    if column.kind in ("name", "word"):
        yield from NO_NAME + (("../x", "a/b", "a: b") if column.kind == "word" else ())
        return
    yield from NO_NUMBER
    if not column.zero:
        yield from ("0", "0.0", "-0")
    if column.kind == "whole":
        yield "2.5"


def damaged_cells(schema: Schema, cells: Cells, rng: random.Random) -> Iterator[Damage]:
    for column in schema.columns:
        if column.name not in cells[0]:
            continue
        at = cells[0].index(column.name)
        for value in bad_values(column):
            row = rng.randrange(1, len(cells))
            broken = [list(line) for line in cells]
            broken[row][at] = value
            yield f"{column.name} = {value!r} in row {row}", text_of(broken)


def damaged_shapes(schema: Schema, cells: Cells, rng: random.Random) -> Iterator[Damage]:
    for name in schema.required:
        at = cells[0].index(name)
        yield f"without {name}", text_of([line[:at] + line[at + 1 :] for line in cells])
        yield f"{name} renamed", text_of([[*cells[0][:at], name + "_x", *cells[0][at + 1 :]], *cells[1:]])
        yield f"{name} without its name", text_of([[*cells[0][:at], "", *cells[0][at + 1 :]], *cells[1:]])
        yield f"{name} twice", text_of([[*line, line[at]] for line in cells])
    for row in range(1, len(cells)):
        yield f"row {row} short", text_of([line[:-1] if i == row else line for i, line in enumerate(cells)])
        yield f"row {row} long", text_of([[*line, "1"] if i == row else line for i, line in enumerate(cells)])


def damaged_files(schema: Schema, cells: Cells, rng: random.Random) -> Iterator[Damage]:
    whole = text_of(cells)
    place = rng.randrange(1, len(whole) - 1)
    last_comma = whole.rstrip().rfind(b",")
    yield "cut", whole[: rng.randrange(whole.rstrip().rfind(b"\n") + 2, last_comma + 1)]
    yield "no rows", text_of(cells[:1])
    yield "empty", b""
    yield "only blank lines", b"\n \n\n"
    yield "a byte 0", whole[:place] + b"\0" + whole[place:]
    yield "a byte of another encoding", whole[:place] + b"\xe9" + whole[place:]
    yield "UTF-16", whole.decode().encode("utf-16")
    yield "UTF-16 without a mark", whole.decode().encode("utf-16-le")
    yield "a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + rng.randbytes(200)
    yield "semicolons", whole.replace(b",", b";")
    yield "tabulators", whole.replace(b",", b"\t")
    yield "an open quote", whole.replace(b"\n", b'\n"', 1)


def share(schema: Schema) -> int:
    """Of `EACH`, what falls to one kind of its suite."""
    return EACH // sum(other.suite == schema.suite for other in SCHEMAS)


def damages(schema: Schema, most: int) -> list[Damage]:
    """Every damage of the file, and cells and shapes drawn at random."""
    rng, cells = random.Random(schema.name), table_of(schema)
    parts = [list(each(schema, cells, rng)) for each in (damaged_files, damaged_cells, damaged_shapes)]
    rest = parts[1] + parts[2]
    return parts[0] + rng.sample(rest, min(most - len(parts[0]), len(rest)))


def silent(schema: Schema, path: Path) -> str:
    """What is wrong with how a damaged table was taken; nothing if it was refused in a line, or named in a note."""
    try:
        result = survey(path.parent)
        if result.others:
            return ""
        messages: list[str] = []
        rows = result.tables[0].rows(messages)
    except DataError as error:
        return "" if "\n" not in str(error) and str(error) else f"more than a line: {error}"
    return "" if len(rows) < len(table_of(schema)) - 1 and messages else "taken"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_no_damage_is_taken_silently_or_ends_in_a_traceback(schema, tmp_path):
    path = tmp_path / "table.csv"
    wrong = []
    for what, content in damages(schema, share(schema)):
        path.write_bytes(content)
        problem = silent(schema, path)
        wrong += [f"{what}: {problem}"] if problem else []
    assert not wrong


def harmless(cells: Cells) -> Iterator[tuple[str, bytes]]:
    whole = text_of(cells)
    yield "as it is", whole
    yield "byte order mark", b"\xef\xbb\xbf" + whole
    yield "lines of Windows", whole.replace(b"\n", b"\r\n")
    yield "no last line end", whole.rstrip()
    yield "blank lines", whole + b"\n\n"
    yield "columns in another order", text_of([line[::-1] for line in cells])
    yield "everything in quotes", "\n".join(",".join(f'"{cell}"' for cell in line) for line in cells).encode()


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_kinds_are_known_by_columns_alone(schema, tmp_path):
    path = tmp_path / "of" / "an unknown source.CSV"
    path.parent.mkdir()
    whole = None
    for what, content in harmless(table_of(schema)):
        path.write_bytes(content)
        result, messages = survey(tmp_path), []
        assert [table.schema.name for table in result.tables] == [schema.name], what
        rows = result.tables[0].rows(messages)
        assert not messages, what
        whole = rows if whole is None else whole
        pd.testing.assert_frame_equal(rows, whole)
    path.write_bytes(text_of([[*line, "mine" if i == 0 else "1"] for i, line in enumerate(table_of(schema))]))
    assert unread(tmp_path) == ["of/an unknown source.CSV: column(s) mine not used"]


def test_between_two_kinds_the_larger_then_the_earlier_wins():
    small, large = Schema("s", "small", SCHEMAS[0].columns[:2]), Schema("l", "large", SCHEMAS[0].columns[:3])
    also = Schema("a", "also", SCHEMAS[0].columns[:3])
    header = [column.name for column in SCHEMAS[0].columns]
    assert choose(header, (small, large, also), "x") is large
    assert choose(header, (small, also, large), "x") is also
    every = [schema.name for schema in SCHEMAS]
    assert len(set(every)) == len(every) == len(list(TABLES.glob("*.csv")))
    for schema in SCHEMAS:  # each says who scores it, or why nobody does, never both
        assert bool(schema.suite) != bool(schema.why), schema.name


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: t.replace(b"31.5", b"-3"), "bad.csv, row 1 (line 2), column latency_us: '-3' is negative; allowed: "
         "a number above 0 to 1e+10 [us]"),
        (lambda t: t.replace(b"4096", b"1.5"), "row 2 (line 3), column m: '1.5' is not whole; allowed: a whole number"),
        (lambda t: t.replace(b"latency_us", b"latency_ms"),
         "bad.csv lacks column(s) latency_us of matrix products [m, k] x [k, n] (is 'latency_ms' meant to be"),
        (lambda t: t.replace(b",", b";"), "bad.csv, line 1: cells are separated by semicolons; allowed: commas"),
        (lambda t: t + b"1,2\n", "bad.csv, row 5 (line 6): 2 cells; allowed: 7"),
        (lambda t: b"", "bad.csv is empty"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_a_damaged_table_is_one_line_and_exit_code_2(
    command: str, damage: Callable[[bytes], bytes], message: str, tmp_path, capsys
):
    (tmp_path / "bad.csv").write_bytes(damage((TABLES / "gemm.csv").read_bytes()))
    out = ["--out", str(tmp_path / "out")] if command == "calibrate" else []
    assert main([command, str(tmp_path), *out]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_no_file_or_too_large_is_refused(tmp_path, monkeypatch):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv is a folder; allowed: a CSV file"):
        survey(tmp_path)
    (tmp_path / "folder.csv").rmdir()
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"nowhere\.csv cannot be read: No such file"):
        survey(tmp_path)
    (tmp_path / "nowhere.csv").unlink()
    (tmp_path / "large.csv").write_bytes((TABLES / "gemm.csv").read_bytes())
    monkeypatch.setattr(checked_reader, "MOST_BYTES", 100)
    with pytest.raises(DataError, match=r"large\.csv has 0 MiB; allowed: at most"):
        survey(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        survey(tmp_path / "large.csv")


def test_options_that_are_not_known_are_set_aside_with_a_note(tmp_path):
    (tmp_path / "t.csv").write_bytes((TABLES / "experts.csv").read_bytes().replace(b"power_law_1.2", b"lumpy"))
    messages: list[str] = []
    assert len(survey(tmp_path).tables[0].rows(messages)) == 3
    assert messages == ["t.csv: 1 rows set aside, distribution lumpy is not known"]


@pytest.mark.slow
def test_unknown_devices_of_every_kind_are_named_and_nothing_else_happens(tmp_path):
    for schema in SCHEMAS:
        if schema.name == "peaks":
            continue
        cells = table_of(schema)
        if "gpu" in cells[0]:
            at = cells[0].index("gpu")
            cells = [cells[0], *([*line[:at], "Abacus-1", *line[at + 1 :]] for line in cells[1:])]
        (tmp_path / f"x_{schema.name}.csv").write_bytes(text_of(cells))
    result = validate(tmp_path)
    assert {row["suite"] for row in result} == {"note"}
    notes = " ".join(row["quantity"] for row in result)
    for schema in SCHEMAS:
        if schema.suite and schema.name not in ("peaks", "open_loop_peers", "mlperf_inference"):
            assert schema.name in notes or "Abacus-1" in notes


def test_a_renamed_table_is_scored_the_same(tmp_path):
    for name in ("first/gemm_published.csv", "second/whatever.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes((TABLES / "published_gemm.csv").read_bytes())
    one, two = ([row for row in validate(tmp_path / name, (UNFITTED,)) if row["suite"] != "note"]
                for name in ("first", "second"))  # fmt: skip
    assert one == two
    assert sum(row["n"] for row in one if row["group"] == "all") == 3  # one takes less than 10 us


def test_the_schema_is_printed(capsys):
    assert main(["validate", "--schema"]) == 0
    assert "gemm: matrix products" in capsys.readouterr().out
    assert main(["validate", "--schema", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [kind["name"] for kind in data["kinds"]] == [schema.name for schema in SCHEMAS]
    latency = data["kinds"][0]["columns"][-1]
    assert latency["unit"] == "us"
    assert latency["required"]
    assert main(["validate"]) == 2
    assert main(["validate", ".", "--schema"]) == 2


def test_numbers_are_read_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).uniform(1e-3, 1e6, 4).tolist()
    cells = table_of(SCHEMAS[0])
    for line, value in zip(cells[1:], values, strict=True):
        line[-1] = repr(value)
    (tmp_path / "t.csv").write_bytes(text_of(cells))
    assert survey(tmp_path).tables[0].rows([])["latency_us"].tolist() == values
