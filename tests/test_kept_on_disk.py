"""What is kept for the next process is what would be made anew, and anything else is made anew."""

import pytest
from bokeh.embed import json_item
from example_run import write_run
from omegaconf import OmegaConf

from codesign.config import composition, plain_composition
from codesign.config.plain_composition import Composition, cached
from codesign.core import disk_cache as kept_on_disk
from codesign.core.json_yaml import dumps
from codesign.report import charts, pages
from codesign.report.run_folder import read_run


@pytest.fixture
def kept_here(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_on_disk, "_folder", [tmp_path / "cache"])
    return tmp_path / "cache"


@pytest.mark.slow
@pytest.mark.parametrize("given", [("experiment=photonic_rack",), ("accelerator=b200", "prefill=same"), ()], ids=str)
def test_a_composition_read_back_is_the_one_that_was_made(given, kept_here):
    files = composition.edition()
    made = composition._composed_anew(given)
    assert cached(given, files, lambda: made) is made
    result = cached(given, files, lambda: pytest.fail("composed again"))
    assert repr(result) == repr(made)
    assert OmegaConf.is_struct(composition._chosen(given, files))


def test_another_word_in_a_file_is_another_composition(kept_here, tmp_path):
    file = tmp_path / "a.yaml"
    for age, value in enumerate((1, 2, 1)):
        file.write_text(f"a: {value}", encoding="utf-8")
        read = OmegaConf.to_container(OmegaConf.load(file))
        made = cached(("a=b",), [(str(file), age)], lambda read=read: Composition(read, {}))
        assert made.config == {"a": value}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"config": [1], "options": {}}', '{"config": {}}'])
def test_what_cannot_be_read_is_composed_anew(text, kept_here, tmp_path):
    made = Composition({"a": 1.5}, {"g": "o"})
    cached((), [], lambda: made)
    (path,) = (kept_here / "composed").iterdir()
    path.write_text(text, encoding="utf-8")
    assert cached((), [], lambda: made) is made
    assert plain_composition._stored_composition(path.read_text(encoding="utf-8").partition("\n")[2]) is not None


def test_what_json_would_change_is_not_kept(kept_here):
    made = Composition({"a": {1: 2}, "b": float("inf")}, {})
    assert cached((), [], lambda: made) is made
    assert cached((), [], lambda: made) is made
    assert not (kept_here / "composed").exists()


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(kept_on_disk, "_folder", [tmp_path / "file"])
    assert [kept_on_disk.cached_text("kind", "key", lambda: "text") for _ in range(2)] == ["text", "text"]


def test_the_oldest_of_too_many_goes(kept_here, monkeypatch):
    monkeypatch.setattr(kept_on_disk, "MAX_TEXTS", 3)
    for at in range(5):
        kept_on_disk.cached_text("kind", str(at), lambda: "text")
    assert len(list((kept_here / "kind").iterdir())) == 3


def by_bokeh(made, place):
    item = dict(json_item(made))
    item["target_id"] = place
    names: dict[str, str] = {}
    return pages.NAMED.sub(lambda found: names.setdefault(found[0], f'"c{len(names)}"'), dumps(item))


@pytest.mark.parametrize("again", [False, True], ids=["made", "read back"])
def test_a_chart_filled_in_is_the_chart_that_bokeh_makes(again, kept_here, tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    marks, roofs, names, ends = charts.roofline_data(run)
    marks["y"] = [float("nan"), *marks["y"][1:]]
    how = ("roofline", charts.roofline_plot, (380,), [marks, roofs, names], ends, (1.0, 2e15))
    if again:
        pages.chart(*how)
    result = pages.chart(*how)
    wanted = by_bokeh(charts.roofline_plot(380, marks, roofs, names, ends, (1.0, 2e15)), "roofline")
    assert wanted.replace("<", "\\u003c") in result
