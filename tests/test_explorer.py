import http.client
import threading
import time
from collections import OrderedDict
from urllib.parse import urlsplit

import numpy as np
import pytest
from bokeh.document import Document
from example_run import write_run

from codesign.commands.cli import main
from codesign.config import study_from_config
from codesign.core.errors import ConfigError
from codesign.explorer import proving, reader_page
from codesign.explorer.answers import Answerer
from codesign.explorer.beginning import given, overrides_of
from codesign.explorer.proving import searched
from codesign.explorer.reader_page import Page
from codesign.explorer.server import moved, server_of
from codesign.search import Trace
from codesign.search.results import designs
from codesign.study.objective import feasible

SMALL = (
    "space.plan.tp=[4,8]", "space.plan.pp=[4,8,16]", "space.plan.micro_batch=[1,2]", "space.plan.virtual_stages=[1,3]",
    "space.plan.zero=[0,1]", "space.plan.sequence_parallel=[true]", "space.plan.recompute=[none,selective]",
)  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return given(SMALL)


@pytest.fixture(scope="module")
def answerer(found):
    return Answerer(found)


def somewhere(found, seed):
    rng = np.random.default_rng(seed)
    return {knob.key: knob.at(rng.uniform(40, 160)) for knob in found.knobs}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_of_every_plan_is_what_the_model_says(found, answerer, seed):
    values = somewhere(found, seed)
    answer = answerer.at(values)
    plans, problem = found.study.space.plans(found.study.scenario), found.study.problem
    count = len(plans["tp"])
    assert answer.plans == count
    point = {knob.name: np.full(count, values[knob.key]) for knob in found.knobs if knob.kind == "hardware"}
    asked = study_from_config(*searched(found, {k: v for k, v in values.items() if not k.startswith("hardware.")}))
    every = designs(
        type(problem)(problem.scenario, problem.space, asked.objective), Trace(plans | point, [""] * count), 0
    )
    shown = answer.run.designs
    np.testing.assert_allclose(shown["objective"][0], every["objective"][0], rtol=1e-12)
    np.testing.assert_allclose(shown["excess"][0], every["excess"][0], rtol=1e-9, atol=1e-12)
    assert answer.feasible_count == int(every["feasible"].sum())
    assert bool(shown["feasible"][0]) == bool(feasible(every["excess"][0]))
    same = {"time_s", "capex_usd", "usage.hbm", "limit.capex_usd", "breakdown_s.tp", "memory_bytes.hbm/weights"}
    for name in same:
        np.testing.assert_allclose(shown[name][0], every[name][0], rtol=1e-12)


def test_the_heading_says_whether_the_device_is_the_catalogues(found, answerer):
    """Back at its numbers, it is the product again; a limit makes no other product."""
    wider = dict(found.start)
    wider["hardware.scale_up_bandwidth"] *= 1.5
    tighter = found.start | {"limits.capex_usd": 0.9 * found.start["limits.capex_usd"]}
    told = [str(reader_page.job(found, answerer.at(values).run)) for values in (found.start, wider, tighter)]
    assert told == [f"<h1>gpt3_175b training on h100_sxm{name}</h1>" for name in ("", " (modified)", "")]


def test_what_is_shared_brings_the_page_back(found):
    values = somewhere(found, 3)
    words = overrides_of(found.study, found.overrides, found.knobs, values)
    again = given(words)
    assert {knob.key for knob in again.knobs} == {knob.key for knob in found.knobs}
    for knob in again.knobs:
        assert knob.start == pytest.approx(values[knob.key], rel=1e-12), knob.key
    held = study_from_config(*words)
    assert not held.space.hardware
    assert held.objective.limits["capex_usd"] == values["limits.capex_usd"]
    assert overrides_of(again.study, again.overrides, again.knobs, again.start)  # and once more


def test_a_run_begins_at_its_best_design(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "overrides.txt").write_text("\n".join(SMALL))
    begun = given([str(folder)])
    assert begun.run is not None
    best = begun.run.best
    for knob in begun.knobs:
        if f"var.{knob.name}" in best:
            assert knob.start == pytest.approx(knob.within(best[f"var.{knob.name}"]))


def test_a_link_carries_numbers_and_nothing_else(found):
    asked = {"limits.capex_usd": [b"1e8"], "hardware.hbm_to_ddr": [b"<script>"], "other": [b"1"]}
    assert moved(found.knobs, asked) == {"limits.capex_usd": 1e8}
    assert moved(found.knobs, {"limits.capex_usd": [b"nan"]}) == {}


def test_a_proof_goes_from_waiting_to_done_in_a_process_of_its_own(found, tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    code = f"import shutil, sys; shutil.copytree({str(folder)!r}, sys.argv[2] + '/run')"
    monkeypatch.setattr(proving, "PROCESS", ("-c", code))
    monkeypatch.setattr(proving, "PAUSE_S", 0.0)
    known = OrderedDict()
    prover = proving.Prover(found, known)
    try:
        prover.ask(found.start)
        assert prover.look().state == proving.RUNS
        for _ in range(200):
            if prover.look().state != proving.RUNS:
                break
            time.sleep(0.05)
        done = prover.look()
        assert done.state == proving.DONE
        assert done.run is not None
        assert len(done.run.designs) == 60
        again = proving.Prover(found, known)  # another reader
        assert again.look() is done
        again.stop()
    finally:
        prover.stop()


def test_a_proof_is_of_the_limits_and_of_the_whole_box(found):
    values = somewhere(found, 4)
    words = searched(found, {key: value for key, value in values.items() if not key.startswith("hardware.")})
    study = study_from_config(*words)
    assert set(study.space.hardware) == set(found.study.space.hardware)
    assert study.objective.limits["capex_usd"] == values["limits.capex_usd"]


def test_only_who_has_the_token_is_answered(found, answerer):
    made, address = server_of(found, answerer=answerer)
    place = urlsplit(address)
    paths = ("/", "/ws", "/static/js/bokeh.min.js", "/wrong/", f"{place.path}x/../../etc", "//")
    told: dict[str, int] = {}

    def ask():
        for path in (*paths, place.path + "static/js/bokeh.min.js"):
            told[path] = status(place.netloc, path, place.netloc)
        told["other host"] = status(place.netloc, place.path, "attacker.example")
        made.io_loop.add_callback(made.io_loop.stop)

    def status(netloc, path, host):
        connection = http.client.HTTPConnection(netloc, timeout=10)
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status

    made.start()
    thread = threading.Thread(target=ask)
    thread.start()
    made.io_loop.start()
    thread.join()
    made.stop()
    assert place.hostname == "127.0.0.1"
    assert len(place.path) > 24
    assert {told[path] for path in paths if path != f"{place.path}x/../../etc"} == {403}
    assert told["other host"] == 403
    assert told[f"{place.path}x/../../etc"] in (403, 404)
    assert told[place.path + "static/js/bokeh.min.js"] == 200


def test_names_are_escaped_in_every_piece(found, answerer):
    page = Page(found, answerer, Document(), "http://127.0.0.1/<i>", {})
    try:
        page.answer.run.designs["var.<script>alert(1)</script>"] = 1.0
        page.answer.run.designs["active_constraints"] = '<img src=x onerror="alert(1)"> 99%'
        page._tell()
        page._more()
        told = "".join(str(piece.text) for piece in page.pieces.values())
        assert "&lt;img src=x" in told
        assert "<img" not in told
        assert "<script" not in told
        assert "<i>" not in told
    finally:
        page.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a folder"),
        (["runs/x", "plan.tp=8"], "explore: 'runs/x' is no override"),
        (["~space.hardware.nothing"], "nothing"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(words, message):
    with pytest.raises(ConfigError, match=message) as refused:
        given(words)
    assert "\n" not in str(refused.value)


def test_a_port_that_is_none_is_refused(capsys):
    assert main(["explore", "--port", "80"]) == 2
    assert capsys.readouterr().err == "codesign: --port = 80 must be from 1024 to 65535\n"
