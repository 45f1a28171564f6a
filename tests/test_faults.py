"""Faults and edges: damaged caches, full disks, devices in the place of files, narrow terminals, processes that die."""

import ast
import errno
import io
import json
import os
import random
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from example_run import write_run

from codesign.commands.cli import main
from codesign.commands.left_files import discard_run
from codesign.commands.multirun import alone_in
from codesign.commands.setup import CheckedEntries
from codesign.config import study_from_config
from codesign.config.plain_composition import Composition, cached
from codesign.config.study import documented_scenario
from codesign.core import atomic_files
from codesign.core import disk_cache as kept_on_disk
from codesign.core.atomic_files import is_replaceable, write_bytes, write_files, write_text, writing
from codesign.core.errors import ConfigError, WriteError
from codesign.core.terminal_encoding import lenient_output, nearest
from codesign.evidence.validation import validate
from codesign.report import charts, pages
from codesign.report.run_folder import read_run
from codesign.search.exhaustive.grid import CHECKPOINT
from codesign.staging.program_cache import made_once

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["experiment=train_dlrm", "calibration=h100_sxm_roofline"]
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")


def started(folder: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own."""
    settings = os.environ | {"PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")}
    return subprocess.Popen(
        [sys.executable, "-m", "codesign", *words], cwd=folder, env=settings | environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


# --- what is taken away or put in the place of a part


@pytest.mark.parametrize("text", [
    "~plan", "~cluster", "~workload", "plan=[]", "workload=[]", "objective=[]", "memory=[]", "cluster=[]", "cluster=3",
    "cluster.levels=3", "cluster.levels={}", "cluster.host=[]", "cluster.network.scale_up=[]", "space.hardware=[]",
    "workload.precision=3", "workload.model=[]", "plan.tp=\udcff",
])  # fmt: skip
def test_a_part_that_is_none_is_one_line(text):
    """Of designs and of studies: the key, and what is allowed."""
    key = text.lstrip("~").partition("=")[0]
    for make in (documented_scenario, study_from_config):
        with pytest.raises(ConfigError) as refused:
            make(text)
        assert key in str(refused.value)
        assert "Error merging" not in str(refused.value)


@pytest.mark.parametrize("text", ["~objective", "~space", "~search", "~seed", "seed=[]", "name=[]", "name=null"])
def test_a_study_without_a_part_is_one_line(text):
    with pytest.raises(ConfigError, match=text.lstrip("~").partition("=")[0]):
        study_from_config(text)


@pytest.mark.slow
def test_evaluate_and_optimize_without_a_plan_end_with_2(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("evaluate", "optimize"):
        for text in ("~plan", "plan=[]", "~cluster"):
            assert main([command, text]) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


# --- caches


def composition(_):
    made = Composition({"a": 1.5}, {"g": "o"})
    return cached((), [], lambda: made).config["a"]


def program(_):
    return made_once("programs", lambda: [["key"]], lambda: [1, 2], list, list, 4)


def chart(folder):
    run = read_run(folder / "run" if (folder / "run").is_dir() else write_run(folder / "run"))
    marks, roofs, names, ends = charts.roofline_data(run)
    return pages.chart("roofline", charts.roofline_plot, (380,), [marks, roofs, names], ends, (1.0, 2e15))


def text(_):
    return kept_on_disk.cached_text("kind", "key", lambda: "a text\nof lines\n")


def compiled(folder):
    entries = CheckedEntries(folder / "cache" / "compiled")
    result = entries.get("key")
    if result is None:
        entries.put("key", b"machine code")
    return b"machine code" if result is None else result


DAMAGE = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "nothing": lambda path: path.write_bytes(b""),
    "first byte": lambda path: flip(path, 0),
    "a byte in the middle": lambda path: flip(path, path.stat().st_size // 2),
    "last byte": lambda path: flip(path, path.stat().st_size - 1),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "unreadable": lambda path: path.chmod(0),
}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("cache", [text, composition, program, chart, compiled])
def test_a_damaged_cache_is_made_anew_in_silence(cache, damage, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(kept_on_disk, "_folder", [tmp_path / "cache"])
    first = cache(tmp_path)
    (path,) = [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]
    whole = path.read_bytes()
    DAMAGE[damage](path)
    assert cache(tmp_path) == first
    assert cache(tmp_path) == first
    assert capfd.readouterr() == ("", "")
    if damage != "a folder":
        assert path.read_bytes() == whole
    assert not list((tmp_path / "cache").rglob("*.partial"))


# --- files that a user asked for

OWN_FOLDERS = {"commands/setup.py", "commands/left_files.py", "commands/compare.py",
               "search/exhaustive/chunks.py"}  # fmt: skip
"""Modules that make folders of their own: of a run, of its chunks, of caches."""

WRITING = re.compile(r"open\(|to_csv|to_parquet|savez|os\.re(place|name)|\.write_|mkdir")
"""Words of a module that may write."""


def writes(node: ast.Call) -> bool:
    """Whether a call writes or renames a file by itself, or makes a folder."""
    called, first = node.func, ast.unparse(node.args[0]) if node.args else ""
    if isinstance(called, ast.Name):
        mode = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else ""
        return called.id == "open" and bool(set(str(mode)) & set("wax+")) and first != "os.devnull"
    if not isinstance(called, ast.Attribute):
        return False
    if called.attr in ("to_csv", "to_parquet"):
        return bool(first) and first != "buffer"
    if called.attr in ("savez", "savez_compressed"):
        return first not in ("file", "buffer")  # open ones
    if called.attr in ("replace", "rename"):
        return ast.unparse(called.value) == "os"
    return called.attr in ("write_text", "write_bytes", "mkdir")


def test_files_are_written_by_one_module():
    wrong = []
    for path in sorted((ROOT / "codesign").rglob("*.py")):
        name, text = str(path.relative_to(ROOT / "codesign")), path.read_text(encoding="utf-8")
        if not WRITING.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            folder = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".mkdir") and name in OWN_FOLDERS
            if isinstance(node, ast.Call) and name != "core/atomic_files.py" and writes(node) and not folder:
                wrong.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "write by codesign/core/atomic_files.py:\n" + "\n".join(wrong)


def test_a_link_stays_a_link_and_keeps_its_rights(tmp_path):
    (tmp_path / "there").write_text("old", encoding="utf-8")
    (tmp_path / "there").chmod(0o640)
    (tmp_path / "link").symlink_to("there")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o640
    (tmp_path / "nowhere").symlink_to(tmp_path / "made")
    write_text(tmp_path / "nowhere", "made")
    assert (tmp_path / "made").read_text(encoding="utf-8") == "made"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "made", "nowhere", "there"]


def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = []
    reader = threading.Thread(target=lambda: result.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert not is_replaceable(tmp_path / "pipe")
    write_bytes(tmp_path / "pipe", b"through")
    reader.join(10)
    assert result == [b"through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@FULL
def test_csv_to_what_is_there(tmp_path, capsys, monkeypatch):
    """A device stays a device, a link a link; whatever cannot be written is one line."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    ask = ["sql", "run", "select rank from designs", "--csv"]
    kind = os.stat("/dev/full").st_mode
    assert main([*ask, "/dev/full"]) == 2
    assert capsys.readouterr().err == "codesign: cannot write '/dev/full': No space left on device\n"
    assert os.stat("/dev/full").st_mode == kind
    assert main([*ask, "/dev/null"]) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    Path("old.csv").write_text("old", encoding="utf-8")
    Path("link.csv").symlink_to("old.csv")
    assert main([*ask, "link.csv"]) == 0
    assert Path("link.csv").is_symlink()
    assert Path("old.csv").read_text(encoding="utf-8").startswith("rank\n")
    capsys.readouterr()
    for bad in (".", "none/a.csv", "old.csv/a.csv", "a\0b"):
        assert main([*ask, bad]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("codesign: cannot write ")


@pytest.mark.slow
def test_csv_to_what_is_open_already(tmp_path):
    write_run(tmp_path / "run")
    with open(tmp_path / "all.csv", "wb") as file:
        words = [sys.executable, "-m", "codesign", "sql", "run", "select 1 as a", "--csv", "/dev/stdout"]
        settings = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(words, cwd=tmp_path, env=settings, stdout=file, stderr=subprocess.PIPE, check=True)
    assert (tmp_path / "all.csv").read_text(encoding="utf-8").split() == ["a", "1"]


class Filling(io.RawIOBase):
    """A disk that is full after so many bytes."""

    def __init__(self, inner, room):
        self.inner, self.room = inner, room

    def write(self, data):
        if self.room[0] < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room[0] -= len(data)
        return self.inner.write(data)

    def writable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *where):
        return self.inner.seek(*where)

    def tell(self):
        return self.inner.tell()

    def close(self):
        self.inner.close()
        super().close()


def fill_after(monkeypatch, room: int) -> None:
    """As if the disk had room for so many bytes of what is still written."""
    left = [room]
    monkeypatch.setattr(atomic_files, "open", lambda path, mode: Filling(io.FileIO(path, "w"), left), raising=False)


@pytest.mark.parametrize("room", [0, 10, 100])
def test_all_files_or_none(room, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old", encoding="utf-8")
    fill_after(monkeypatch, room)
    with pytest.raises(WriteError, match=r"cannot write .*: No space left on device"):
        write_files({tmp_path / "a": "new", tmp_path / "b" / "c" / "d": "x" * 50, tmp_path / "b" / "e": "y" * 60})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 5_000, 20_000, 60_000])
def test_a_full_disk_leaves_no_run_folder(room, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fill_after(monkeypatch, room)
    assert main(["optimize", *QUICK, "search=grid"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("No space left on device")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ["report", "run"], ["export", "run", "--to", "megatron", "--out", "out"], ["scaffold", "fabric", "ours"],
    ["scaffold", "model", "ours", "--conf", "mine"],
], ids=lambda words: " ".join(words[:2]))  # fmt: skip
def test_a_full_disk_leaves_nothing_half_written(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    fill_after(monkeypatch, 100)
    code = main(words)
    out, err = capsys.readouterr()
    if "export" in words and "No space" not in err:
        pytest.skip("this run has nothing to export")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("codesign: cannot write ")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "mine").exists()
    assert not (tmp_path / "codesign_ours").exists()


@pytest.mark.slow
def test_a_limit_of_the_system_is_one_line(tmp_path):
    """RLIMIT_FSIZE: no file may grow beyond a page."""
    write_run(tmp_path / "run")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    words = [sys.executable, "-m", "codesign", "sql", "run", "select * from range(100000)", "--csv", "big.csv"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, text=True, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "codesign: cannot write 'big.csv': File too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_a_search_can_be_continued_from_stays(tmp_path):
    for name in ("config.yaml", CHECKPOINT, "certificate/nodes.parquet", "chunks/a.parquet"):
        write_files({tmp_path / "run" / name: "x"})
    discard_run(tmp_path / "run")
    assert {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()} == {
        CHECKPOINT, "chunks/a.parquet",
    }  # fmt: skip


# --- terminals


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "utf-8"])
def test_output_of_any_encoding_never_fails(encoding, monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with lenient_output(restore=True):
        print("3 \u00d7 5 µs ≤ 2² — ┏━┓│█⠋ €\u2009日本 \ud800 a\udcffb")
        stream.flush()
    assert stream.errors == "strict"
    told = raw.getvalue()
    assert b"a\xffb" in told  # a file name is what it is
    if encoding == "ascii":
        assert told == b"3 x 5 us <= 22 - +-+|## EUR ?? ? a\xffb\n"


ASCII, WINDOWS = {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252:strict"}
C = {"LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "settings"), [
    (["report", "run"], C), (["sql", "run"], ASCII), (["sql", "run"], WINDOWS), (["--help"], ASCII),
    (["sql", "run", "select '\u2264 \u65e5\u672c' as \"\u00b5\""], WINDOWS),
    (["sql", "run", "select '\u2264 \u65e5\u672c' as \"\u00b5\""], C),
    (["list", "limits"], C), (["validate", "--schema"], WINDOWS), (["evaluate", "accelerator=h100_s\u00e9"], ASCII),
], ids=lambda value: " ".join(value)[:12])  # fmt: skip
def test_every_command_writes_to_a_narrow_terminal(words, settings, tmp_path):
    write_run(tmp_path / "run")
    process = started(tmp_path, *words, PYTHONCOERCECLOCALE="0", **settings)
    out, err = (told.decode("latin-1") for told in process.communicate(timeout=120))
    assert process.returncode == (2 if "accelerator=h100_s\u00e9" in words else 0), err
    assert "Traceback" not in err
    assert out or err.count("\n") == 1


@pytest.mark.slow
def test_closed_output_is_no_fault(tmp_path):
    write_run(tmp_path / "run")
    script = f"{sys.executable} -m codesign sql run 'select 1' --csv a.csv >&- 2>&-"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").split() == ["1", "1"]


def test_signs_have_something_near_in_ascii():
    assert all(nearest(sign).isascii() for sign in map(chr, range(0xA0, 0x3000)))


@pytest.mark.parametrize("words", [
    ["sql", "run", "select '\udcff'"], ["evaluate", "plan.tp=\udcff"],
    ["optimize", "name=\udcff"], ["compare", "accelerator=\udcff"], ["list", "accelerator", "\udcff"],
    ["report", "\udcff"], ["\udcff"], ["evaluate", "--conf", "\udcff"], ["scaffold", "model", "\udcff"],
])  # fmt: skip
def test_half_a_sign_is_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


# --- measurements


@pytest.mark.slow
@pytest.mark.parametrize("device", ["tpu_v5p", "trainium2"])
@pytest.mark.parametrize("table", ["layout_steps", "static_batches", "closed_loop"])
def test_devices_on_a_torus_are_validated(device, table, tmp_path):
    """Numbers of theirs have several values, one for each dimension."""
    text = (ROOT / "tests" / "data" / "tables" / f"{table}.csv").read_text(encoding="utf-8")
    (tmp_path / f"{table}.csv").write_text(text.replace("H100-SXM", device), encoding="utf-8")
    rows = validate(str(tmp_path))
    scored = [row for row in rows if row.get("n")]
    assert scored
    assert all(np.isfinite(row["median"]) for row in scored)


# --- processes that die, and two at a time


def test_what_a_killed_process_left_goes(tmp_path, monkeypatch):
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    machine = atomic_files._machine()
    left = tmp_path / f".a.{machine}-{died.pid}-0.partial"
    other = tmp_path / f".a.{machine}-{os.getppid()}-0.partial"
    strange = tmp_path / ".a.abcdef-1-0.partial"
    for path in (left, other, strange):
        path.write_text("half", encoding="utf-8")
    write_text(tmp_path / "a", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a", other.name, strange.name])


def test_files_of_a_killed_process_are_old_or_new(tmp_path):
    """`kill -9` at any instant, as of `codesign calibrate`: no file is half of anything."""
    script = (
        "import itertools, sys; from pathlib import Path; from codesign.core.atomic_files import write_files\n"
        "for n in itertools.count():\n"
        "    write_files({Path(sys.argv[1]) / f'{k}.yaml': f'{n} ' * 20_000 for k in range(5)})\n"
        "    print(n, flush=True)\n"
    )
    rng, settings = random.Random(0), os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], env=settings, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        process.communicate()
        for path in tmp_path.glob("*.yaml"):
            words = path.read_text(encoding="utf-8").split()
            assert len(words) == 20_000
            assert len(set(words)) == 1
    atomic_files._clear.cache_clear()
    write_text(tmp_path / "last", "")
    assert not list(tmp_path.glob(".*.partial"))


@pytest.mark.slow
def test_a_killed_grid_is_continued_from_its_chunks(tmp_path, monkeypatch):
    """`kill -9` after the first chunks; what it had is used, and the frames are those of one pass."""
    monkeypatch.chdir(tmp_path)
    levels = [f"space.hardware.{name}.grid=60" for name in ("scale_up_bandwidth", "scale_out_bandwidth")]
    words = ["optimize", *QUICK, *levels, "search=grid", "search.batch_size=4096"]
    assert main([*words, "name=whole"]) == 0
    words += ["runner=local", "workers=2", "runner.chunk_s=0.02"]
    killed = started(tmp_path, *words, "name=killed")
    until = time.monotonic() + 100
    while len(list(tmp_path.glob("runs/*killed*/chunks/*.parquet"))) < 2 and time.monotonic() < until:
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (left,) = tmp_path.glob("runs/*killed*")
    assert not (left / "designs.parquet").exists()
    again = started(tmp_path, *words, "name=again", f"search.resume={left}")
    _, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    (one,), (other,) = tmp_path.glob("runs/*whole*"), tmp_path.glob("runs/*again*")
    counts = json.loads((other / "summary.json").read_text(encoding="utf-8"))["counts"]
    assert counts["points from earlier chunks"] > 0
    for name in ("designs", "pareto", "histogram", "best_by_value"):
        pd.testing.assert_frame_equal(*(pd.read_parquet(run / f"{name}.parquet") for run in (one, other)))


@pytest.mark.slow
def test_a_second_process_is_refused_in_a_folder(tmp_path):
    (tmp_path / "jobs").mkdir()
    with alone_in(tmp_path / "jobs", "hydra.sweep.dir"):
        second = started(tmp_path, "optimize", "-m", *QUICK, "search=grid", "seed=1,2", "hydra.sweep.dir=jobs")
        out, err = second.communicate(timeout=100)
    assert (second.returncode, out) == (2, b"")
    assert err.decode().splitlines()[-1] == (
        "codesign: hydra.sweep.dir = 'jobs' is written by another process: wait for it, or name another folder"
    )
    assert list((tmp_path / "jobs").iterdir()) == []
    with alone_in(tmp_path / "jobs", "again"):
        pass


@pytest.mark.slow
def test_two_processes_that_report_one_run_both_end_well(tmp_path):
    write_run(tmp_path / "run")
    both = [started(tmp_path, "report", "run") for _ in range(2)]
    assert [process.wait(200) for process in both] == [0, 0]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_threads_write_one_file_whole(tmp_path):
    def write(number):
        for _ in range(50):
            with writing(tmp_path / "a") as file:
                file.write(str(number).encode() * 5_000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result = (tmp_path / "a").read_bytes()
    assert (len(result), len(set(result))) == (5_000, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
