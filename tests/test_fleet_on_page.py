"""Fleets on a run's page: the table that pictures are drawn of, who serves which class; the run stays verified."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from codesign.commands.cli import main
from codesign.explorer.reader_page import fleet
from codesign.report.fleet_figures import PARTS, fleet_headline, fleet_table
from codesign.report.run_folder import MissingPart
from codesign.report.sections import fleet_by_hour, fleet_over_time, served_by
from codesign.simulation.fleet import LatencyLimits, RequestClass, conversations, simulate_fleet
from codesign.simulation.serving import Engine, RooflineSteps, arrivals

STEPS = RooflineSteps(fixed_s=2e-3, weights_s=5e-3, token_s=2e-5, read_s=1e-8, pair_s=1e-9)
CLASSES = (RequestClass("agent", 600, 60, turns=6, think_s=4), RequestClass("chat", 300, 60, share=2))
LIMITS = {"": LatencyLimits(0.5, 0.05), "chat": LatencyLimits(0.05)}


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    requests = conversations(rng, arrivals(rng, 3.0, 1.0, 150), CLASSES, open_loop=True, answer_s=1.0)
    return simulate_fleet(Engine(STEPS, budget=4096, sequences=32), requests, "session_sticky", replicas=3)


@pytest.fixture
def folder(found, tmp_path):
    """What a simulation and a day leave, as far as the page reads it."""
    (tmp_path / "simulation").mkdir()
    (tmp_path / "day").mkdir()
    fleet_table(found, LIMITS).to_csv(tmp_path / "simulation" / "fleet.csv", index=False)
    told = {"headline": fleet_headline(found, LIMITS), "classes": found.by_class(LIMITS), "replicas": 3}
    (tmp_path / "simulation" / "fleet.json").write_text(json.dumps(told), encoding="utf-8")
    hours = pd.DataFrame({
        "hour": range(3), "requests_per_s": [1.0, 4.0, 2.0], "replicas": [1, 3, 2], "power_w": [1e3, 3e3, 2e3],
        "power_all_on_w": [2.5e3, 3e3, 2.8e3],
    })  # fmt: skip
    hours.to_csv(tmp_path / "day" / "hours.csv", index=False)
    return SimpleNamespace(path=tmp_path)


def test_the_table_has_what_came_and_who_kept_the_limits(found):
    table = fleet_table(found, LIMITS)
    assert len(table) == PARTS
    seconds = table["end_s"] - table["begin_s"]
    assert (table["requests_per_s"] * seconds).sum() == pytest.approx(len(found.came))
    agent = found.requests.classes == 0
    good = np.where(agent, found.kept(LIMITS[""]), found.kept(LIMITS["chat"]))
    kept = (table["attainment"] * table["requests_per_s"] * seconds).sum() / len(found.came)
    assert kept == pytest.approx(good.mean())
    some = table.dropna()
    assert (some["requests_least"] <= some["requests_mean"]).all()
    assert (some["requests_mean"] <= some["requests_most"]).all()
    assert set(some["replicas"]) == {3.0}


def test_pictures_are_drawn_of_files_alone(folder):
    first = fleet_over_time(folder).axes[0]
    assert first.get_title("left") + first.get_title() == "requests a second"
    assert len(fleet_by_hour(folder).axes) == 3


def test_classes_name_their_replicas(folder, found):
    table = served_by(folder)
    assert [row[0] for row in table.rows] == ["agent", "chat"]
    chat = found.replica[int(0.2 * len(found.came)) :][found.requests.classes[int(0.2 * len(found.came)) :] == 1]
    most = int(np.bincount(chat).argmax()) + 1
    assert str(table.rows[1][-1]).startswith(f"replica {most} (")


@pytest.mark.parametrize(
    ("name", "text", "draw"),
    [
        ("simulation/fleet.csv", "a,b\n1,2\n", fleet_over_time), ("simulation/fleet.json", "{", fleet_over_time),
        ("simulation/fleet.json", '{"headline": "", "classes": [1], "replicas": 1}', served_by),
        ("day/hours.csv", "hour\n", fleet_by_hour), ("day/hours.csv", "", fleet_by_hour),
    ],
)  # fmt: skip
def test_a_damaged_file_is_a_part_that_is_missing(name, text, draw, folder):
    (folder.path / name).write_text(text, encoding="utf-8")
    with pytest.raises(MissingPart, match=r"cannot be read|has no rows"):
        draw(folder)


@pytest.mark.slow
def test_a_run_shows_its_fleet_and_stays_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plans = ("tp", "pp", "ep", "attention_dp")
    words = ["optimize", "model=llama31_8b", "accelerator=h100_sxm", "workload=goodput", "cluster.device_count=1",
             *(f"space.plan.{name}=[1]" for name in plans), "space.plan.micro_batch=[64]",
             "space.plan.token_budget=[1024]"]  # fmt: skip
    assert main(words) == 0
    run = next(Path("runs").iterdir())
    assert "<h2>Fleet</h2>" not in (run / "report.html").read_text(encoding="utf-8")
    assert main(["simulate", str(run), "--replicas", "2", "--requests", "400", "--slo", "ttft=1s"]) == 0
    assert main(["autoscale", str(run), "--load", "day:3", "--busiest", "20"]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h2>Fleet</h2>" in page
    assert "<h2>Replicas by the hour</h2>" in page
    capsys.readouterr()
    assert main(["verify", str(run), "--attack", "0"]) == 0
    assert "verified:" in capsys.readouterr().out


def test_a_fleet_without_classes_is_one_row(found):
    alone = dataclasses.replace(
        found, requests=dataclasses.replace(found.requests, class_names=(), classes=np.zeros(0, int))
    )
    rows = alone.by_class({})
    assert [row["class"] for row in rows] == ["all"]
    assert sum(rows[0]["by_replica"]) == rows[0]["requests"]


def test_the_explorer_shows_a_runs_fleet(folder):
    shown = str(fleet(folder))
    assert shown.count("data:image/png;base64,") == 2
    assert "<h2>Fleet</h2>" in shown
    assert "<td>agent</td>" in shown
    assert str(fleet(None)) == ""
