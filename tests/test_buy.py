"""`codesign buy`: several jobs on one product."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codesign.commands.buy import costs
from codesign.commands.cli import main
from codesign.commands.what_to_buy import MONTH_S

JOB = ("--serve", "llama31_8b --rate 5/s")


def candidates(**devices: float) -> pd.DataFrame:
    """Candidates with so many devices of $10 and 1 W, at $1 a second each; none where it says 0."""
    rows = [
        {"varied.accelerator": name, "feasible": count > 0, "why": "" if count else "too slow", "devices": count,
         "capex_usd": 10 * count, "provisioned_power_w": count, "usd_per_million_tokens": 1e6 * count / 50,
         "tokens_per_s": 50.0}
        for name, count in devices.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_jobs_add_up_and_a_product_does_all_of_them_or_none():
    result = costs(["a", "b", "c"], ["one", "two"], [candidates(a=4, b=2, c=1), candidates(a=4, b=3, c=0)], years=2.0)
    assert list(result["product"]) == ["b", "a", "c"]
    best = result.iloc[0]
    assert (best["devices"], best["capex_usd"], best["provisioned_power_w"]) == (5, 50, 5)
    assert best["usd_per_month"] == pytest.approx(5 * MONTH_S)
    assert best["usd_over_horizon"] == pytest.approx(5 * MONTH_S * 24)
    assert (best["devices_0"], best["devices_1"]) == (2, 3)
    last = result.iloc[2]
    assert not last["feasible"]
    assert last["why"] == "two: too slow"
    assert np.isnan(last["usd_over_horizon"])


@pytest.mark.parametrize(("words", "expected"), [
    ((), "name a job"),
    (("--serve", ""), "begin with a model"),
    (("--serve", "llama31_8b"), "add --rate 30/s"),
    (("--serve", "llama31_8b --rate 5/s --on b200"), "--on is of all jobs"),
    (("--serve", "llama31_8b --rate 5/s --devices=8"), "is of all jobs"),
    (("--serve", "llama31_8b --rate '5/s"), "No closing quotation"),
    (("--serve", "llama31_8b --rate 5/s --pools both"), "say beside or apart"),
    (("--serve", "llama31_8c --rate 5/s"), "did you mean 'llama31_8b'"),
    (("--train", "llama31_8b --days 9d"), "--tokens"),
    ((*JOB, "--horizon", "4"), "of what? write 4y"),
    ((*JOB, "--horizon", "never"), "write 4y"),
])  # fmt: skip
def test_wrong_words_are_one_line(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["buy", "--on", "h200", *words])
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr().err
    assert code == 2
    assert len(told.strip().splitlines()) == 1
    assert expected in told
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_jobs_are_answered_and_added_up(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    narrow = ("space.plan.tp=[1]", "space.plan.pp=[1]", "space.plan.micro_batch=[64,128]")
    serve = "llama31_8b --rate 5/s 'space.plan.token_budget=[2048]'"
    train = "llama31_8b --tokens 100B --days 90d"
    assert main(["buy", "--on", "h200,b200", "--serve", serve, "--train", train, "--horizon", "3y", *narrow]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 jobs over 3 years" in said
    assert "answer" in said
    table = pd.read_parquet(next(tmp_path.glob("runs/*_buy/buy.parquet")))
    assert set(table["product"]) == {"h200", "b200"}
    frames = [pd.read_parquet(path) for path in sorted(tmp_path.glob("runs/*/comparison.parquet"))]
    for _, row in table.iterrows():
        parts = [frame[frame["varied.accelerator"] == row["product"]].iloc[0] for frame in frames]
        assert row["devices"] == sum(part["devices"] for part in parts)
        assert row["capex_usd"] == pytest.approx(sum(part["capex_usd"] for part in parts))
    assert main(["verify", str(next(tmp_path.glob("runs/*_buy"))), "--attack", "16"]) == 0
    assert "verified: all jobs, and the sums of every product" in capsys.readouterr().out
    for name, change in CHANGES.items():
        changed = tmp_path / "changed"
        shutil.copytree(tmp_path / "runs", changed)
        change(next(changed.glob("*_buy")))
        assert main(["verify", str(next(changed.glob("*_buy"))), "--attack", "16"]) == 1, name
        assert "not verified: " in capsys.readouterr().out, name
        shutil.rmtree(changed)


def _cheaper(folder: Path) -> None:
    frame = pd.read_parquet(folder / "buy.parquet")
    frame["usd_over_horizon"] *= 0.9
    frame.to_parquet(folder / "buy.parquet")


def _fewer_products(folder: Path) -> None:
    pd.read_parquet(folder / "buy.parquet").iloc[1:].to_parquet(folder / "buy.parquet")


def _asked(change: Callable[[str], str]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        told = json.loads((folder / "buy.json").read_text())
        told["command"] = change(told["command"])
        (folder / "buy.json").write_text(json.dumps(told))

    return changed


def _dearer_job(folder: Path) -> None:
    path = folder.parent / json.loads((folder / "buy.json").read_text())["jobs"][0] / "comparison.parquet"
    frame = pd.read_parquet(path)
    frame["usd_per_million_tokens"] *= 2
    frame.to_parquet(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "sums": _cheaper,
    "a product left out": _fewer_products,
    "another horizon": _asked(lambda words: words.replace("3y", "4y")),
    "another rate": _asked(lambda words: words.replace("5/s", "6/s")),
    "another product": _asked(lambda words: words.replace("h200,b200", "h200")),
    "a job's table": _dearer_job,
}
