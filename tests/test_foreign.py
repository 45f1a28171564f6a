"""What strangers send: refused in one line, never a traceback, a hang, or damage that is taken for data.

`python tests/fuzz --cases 20000` tries more of the same.
"""

import os
import zipfile

import numpy as np
import pytest
from fuzz import harness
from fuzz.asked_kinds import ASKED
from fuzz.kinds import KINDS

from codesign.config import study_from_config
from codesign.core import untrusted_io as foreign
from codesign.core.errors import LONGEST, LONGEST_WORD, ConfigError, one_line

COUNTS = {"configurations": 4, "own": 6, "components": 25, "tables": 40}  # the others: 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_short_trial(kind):
    ends, findings, _ = harness.trial(kind, KINDS[kind], COUNTS.get(kind, 50), seed=20)
    assert not findings, findings[:3]
    assert ends["refused"] > 0


@pytest.mark.parametrize("kind", ASKED)
def test_a_short_trial_of_what_is_asked_for(kind):
    """Commands, queries and requests; most links and exports are sound."""
    _, findings, _ = harness.trial(kind, ASKED[kind], 40, seed=21)
    assert not findings, findings[:3]


def raising(error: BaseException) -> harness.Case:
    def run() -> None:
        raise error

    return harness.Case("", run)


def test_what_counts_as_a_finding(monkeypatch):
    def endless() -> None:
        while True:
            pass

    monkeypatch.setattr(harness, "SLOWEST", 0.05)
    assert harness.verdict(harness.Case("", endless))[0] == "hang"
    assert harness.verdict(raising(KeyError("x")))[0] == "traceback"
    assert harness.verdict(raising(ConfigError("x")))[0] == "refused"
    assert harness.verdict(raising(ConfigError("")))[0] == "a message of 0 characters"
    assert harness.verdict(harness.Case("", lambda: False))[0] == "silently taken"
    assert harness.verdict(harness.Case("", lambda: None, sound=False))[0] == "silently taken"
    assert harness.verdict(harness.Case("", lambda: None))[0] == "taken"


def test_a_pipe_a_folder_and_a_large_file_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 100)
    for name, words in (("pipe", "no regular file"), (".", "a folder"), ("none", "No such file"), ("a\0b", "null")):
        with pytest.raises(ConfigError, match=words):
            foreign.read_text(tmp_path / name, "file")
    with pytest.raises(ConfigError, match="allowed: at most"):
        foreign.read_text(tmp_path / "large", "file", most=99)
    (tmp_path / "latin").write_bytes(b"one\n\xe9")
    with pytest.raises(ConfigError, match="line 2 is no UTF-8"):
        foreign.read_text(tmp_path / "latin", "file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a1 [1]\n" + "".join(f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(1, 10)),
         "references are written out"),
        ("a: &a [*a]", "references are written out"),
        ("[" * 10_000, "levels deep"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(100)), "levels deep"),
        ("- " * 1000 + "a", "levels deep"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("a: b: c", "line 1, cannot be read"),
    ],
)  # fmt: skip
def test_yaml_that_grows_or_asks_for_objects(text, words):
    with pytest.raises(ConfigError, match=words):
        foreign.tree_of_yaml(text, "file")


def test_references_that_stay_small_are_taken():
    assert foreign.tree_of_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}", "file")["c"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": NaN}', '{"a": 1, "a": 2}', "", "{'a': 1}"])
def test_json_is_strict(text):
    with pytest.raises(ConfigError, match="is not JSON"):
        foreign.tree_of_json(text, "file")


def test_archives_of_objects_and_those_that_unpack_to_too_much(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    np.savez_compressed(tmp_path / "large.npz", a=np.zeros(10**6))
    (tmp_path / "text.npz").write_text("text")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("a.npy", b"no array")
    for name in ("objects", "text", "other"):
        with pytest.raises(ConfigError, match="damaged or no archive"):
            foreign.read_arrays(tmp_path / f"{name}.npz", "file")
    with pytest.raises(ConfigError, match="would unpack to 8 MiB; allowed: at most 1 MiB"):
        foreign.read_arrays(tmp_path / "large.npz", "file", most=2**20)
    with pytest.raises(ConfigError, match="it has no b"):
        foreign.read_arrays(tmp_path / "large.npz", "file", ["a", "b"])


def test_a_file_that_is_not_what_was_written(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "noted.json").write_text('{"a": "00"}')
    foreign.refuse_changed(tmp_path, ["a", "b"], "nothing.json")
    foreign.refuse_changed(tmp_path, ["b"], "noted.json")
    with pytest.raises(ConfigError, match="not what the run wrote"):
        foreign.refuse_changed(tmp_path, ["a"], "noted.json")


def test_messages_are_one_line_that_steers_no_terminal():
    assert str(ConfigError("a\nb\x1b[2J\u202e")) == "a\\nb\\x1b[2J\\u202e"
    assert one_line("é 💥 " + "a" * 10**6) == "é 💥 " + "a" * LONGEST_WORD + "..."
    assert len(one_line("ab " * 10**5)) == LONGEST + 3


@pytest.mark.parametrize(
    ("override", "words"),
    [("name=${oc.env:HOME}", "asks for something outside"), ("name=" + "a" * 20_000, "allowed: at most 10,000")],
)
def test_overrides_reach_nothing_outside(override, words):
    with pytest.raises(ConfigError, match=words):
        study_from_config(override)
