"""`codesign sql`: frames answer in SQL, nothing outside is reached, whatever is wrong is one line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from contracts.problems import made

from codesign.commands.cli import main
from codesign.executors import Serial
from codesign.search import Grid


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A folder with two frames and the chunks of a real grid."""
    folder = tmp_path_factory.mktemp("run")
    frame = pd.DataFrame({"rank": [1, 2, 3], "var.tp": [8.0, 4.0, 8.0], "time_s": [3.5, np.nan, 4.5]})
    frame.to_parquet(folder / "designs.parquet")
    pd.DataFrame().to_parquet(folder / "links.parquet")
    Grid(batch_size=8, top_k=3, checkpoint=str(folder / "state")).over(Serial(chunk_s=1e-9)).run(made(), 0)
    return folder


def test_frames_answer(run, capsys, tmp_path):
    assert main(["sql", str(run), 'select "var.tp", count(*) as n from designs group by 1 order by 1']) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if line.startswith("│")] == [
        ["│", "4", "│", "1", "│"],
        ["│", "8", "│", "2", "│"],
    ]
    assert main(["sql", str(run)]) == 0
    assert {"designs", "chunks", "kept"} <= set(capsys.readouterr().out.split())
    table = tmp_path / "all.csv"
    assert main(["sql", str(run), "select kind, plan, log_goal, excess from kept", "--csv", str(table)]) == 0
    kept = pd.read_csv(table)
    assert set(kept["kind"]) == {"best", "nearest", "front"}
    assert kept.loc[kept["kind"] == "best", "log_goal"].notna().all()
    assert kept.loc[kept["kind"] == "nearest", "log_goal"].isna().all()


def test_chunks_cover_the_grid_once(run, tmp_path):
    table = tmp_path / "sum.csv"
    sql = "select sum(points) as points, sum(blocks) = max(first + blocks) as whole from chunks"
    assert main(["sql", str(run), sql, "--csv", str(table)]) == 0
    assert table.read_text(encoding="utf-8").split() == ["points,whole", "54,True"]


@pytest.mark.parametrize(
    "sql",
    [
        "selec",
        "select var.tp from designs",
        "select * from nowhere",
        "select 1; select 2",
        "copy designs to 'out.csv'",
        "attach 'out.db'",
        "create table out as select 1",
        "set enable_external_access = true",
        "install httpfs",
        "select * from read_csv('/etc/hosts')",
        "select * from 'designs.parquet'",
        "select * from glob('/*')",
        "select cast('x' as integer)",
        "select * from duckdb_settings()",
        "select name, value from pg_catalog.pg_settings",
        "select current_setting('memory_limit')",
        "select * from query('select * from duckdb_settings()')",
        "select * from query_table('duckdb_settings')",
        "with t as (select * from duckdb_settings()) select * from t",
        "select (select count(*) from duckdb_memory()) from designs",
        "select * from information_schema.tables",
        "select * from sqlite_master",
        "select write_log('x')",
        "select sleep_ms(1)",
        "show all tables",
        "reset memory_limit",
        "select '\ud800'",
        "select '\udcff' from designs",
        "select error('\x1b[31m')",
    ],
)
def test_what_is_no_question_is_one_line(run, sql, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sql", str(run), sql]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("codesign: sql: ")
    assert "\x1b" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "with t as (select 1 as a), u as (select a + 1 as b from t) select * from u",
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select sum(n) from t",
        "select d.rank from designs as d join (select unnest([1, 2]) as r) on r = d.rank",
        "select * from range(3)",
        "from designs select count(*)",
        "describe designs",
        "summarize DESIGNS",
        "select list_sum([1, 2]), now() > timestamp '2000-01-01', version_ from (select 1 as version_)",
        "select a.rank from designs a, lateral (select a.rank + 1)",
    ],
)
def test_what_is_a_question_is_answered(run, sql, capsys):
    assert main(["sql", str(run), sql]) == 0, capsys.readouterr().err


def test_no_run_and_damaged_frames_are_one_line(run, capsys, tmp_path):
    assert main(["sql", str(tmp_path / "nowhere"), "select 1"]) == 2
    assert main(["sql", str(tmp_path), "select 1"]) == 2
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "a-0-1.parquet").write_bytes(b"PAR1 nothing")
    assert main(["sql", str(tmp_path), "select 1"]) == 2
    (tmp_path / "designs.parquet").write_bytes((run / "designs.parquet").read_bytes()[:-9])
    assert main(["sql", str(tmp_path), "select 1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_jobs_of_a_multirun_are_one_table(tmp_path, capsys):
    for job in (0, 1, 10):
        (tmp_path / str(job)).mkdir()
        pd.DataFrame({"time_s": [float(job)]}).to_parquet(tmp_path / str(job) / "designs.parquet")
    pd.DataFrame({"best": [0.0, 1.0, 10.0]}).to_parquet(tmp_path / "collected.parquet")  # beside them
    assert main(["sql", str(tmp_path), "select count(*) as jobs from collected"]) == 0
    assert "│ 3    │" in capsys.readouterr().out
    assert main(["sql", str(tmp_path), "select max(job) as last, sum(time_s) as total from designs"]) == 0
    assert "│ 10   │ 11    │" in capsys.readouterr().out
