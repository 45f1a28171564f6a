"""Places that are not as a program would like them: full, read-only, linked, narrow, without a home."""

import os
import pwd
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from example_run import write_run

from codesign.commands import left_files
from codesign.commands.cli import main
from codesign.commands.left_files import new_folder
from codesign.commands.setup import cache_folder
from codesign.core.errors import ConfigError

PLAIN = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def command(*words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "codesign", *words], env=PLAIN | more, capture_output=True)


class Stopped(left_files.datetime.datetime):
    """A clock that stands still, or was put back."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


def test_runs_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(left_files.datetime, "datetime", Stopped)
    result: list[Path] = []
    threads = [threading.Thread(target=lambda: result.append(new_folder(tmp_path, "a"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(result)) == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in result)
    monkeypatch.setattr(Stopped, "now", classmethod(lambda cls, tz=None: cls(2025, 12, 31, 23, 59, 59)))
    assert new_folder(tmp_path, "a") not in result
    for _ in range(79):
        new_folder(tmp_path, "b")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "further")
    with pytest.raises(ConfigError, match=r"cannot make the run folder .*: Not a directory"):
        new_folder(tmp_path / "file", "a")
    with pytest.raises(ConfigError, match="cannot make the run folder"):
        new_folder(tmp_path / "nowhere", "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="whoever may write anywhere finds nothing read-only")
def test_a_read_only_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        new_folder(tmp_path, "a")


def test_a_run_behind_a_link_is_read_and_stays_where_it_is(tmp_path, capsys):
    write_run(tmp_path / "there")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert main(["sql", str(tmp_path / "link"), "select count(*) as n from designs"]) == 0
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for bad in ("loop", "link/designs.parquet", "none"):
        assert main(["sql", str(tmp_path / bad), "select 1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_without_a_home_nothing_is_cached(monkeypatch):
    """As of a number without a name in a container."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_folder() is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_one_line(tmp_path):
    with open("/dev/full", "wb") as full:
        words = [sys.executable, "-m", "codesign", "list", "accelerator"]
        done = subprocess.run(words, env=PLAIN, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["codesign: nothing more can be written: No space left on device"]


@pytest.mark.slow
def test_a_narrow_terminal_of_the_c_locale():
    """No home either; every sign that is not ASCII is written in some way."""
    told = command("list", "accelerator", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", COLUMNS="20")
    assert (told.returncode, told.stderr) == (0, b"")
    assert b"h100_sxm" in told.stdout
    refused = command("evaluate", "accelerator=h100_s\u00e9", LC_ALL="C", COLUMNS="20")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
