"""An exhaustive search in chunks, in any order and twice, against one pass: equal in every field, and resumed."""

import dataclasses
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contracts.problems import PLAN, TIGHT, made

from codesign.core.errors import ConfigError
from codesign.executors import Local, Serial
from codesign.search import Gradient, Grid, GridThenGradient, GridThenProof, Problem, silent
from codesign.search.exhaustive.chunks import (
    FOLDER,
    Chunk,
    ChunkFolders,
    ChunkWork,
    Portion,
    PortionMerger,
    StoredChunks,
    cut,
    edges_of,
    load_portion,
    merged,
    save_portion,
    screen_in_chunks,
    study_of,
)
from codesign.search.exhaustive.grid import Sweep, screen
from codesign.search.exhaustive.sweep import TopDesigns
from codesign.study.objective import Objective

BLOCK, KEEP = 8, 5
HARDWARE = {name: dataclasses.replace(one, grid=5 - (name == "up")) for name, one in TIGHT.items()}


def problem_of(budget: float = 7e5) -> Problem:
    """Every plan comes twice, since nothing is staged; and much of the memory's range cannot hold the reserve."""
    plan = {"virtual_stages": [1, 2]} | PLAN
    return made(plan, HARDWARE, Objective("time_s", limits={"capex_usd": budget}))


@pytest.fixture(scope="module", autouse=True)
def equal_plans_stay():
    """Without plans that equal another there are no ties, and order would not be tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codesign.search.exhaustive.sweep.distinct_plans", lambda scenarios, space, plans: plans)
        yield


@pytest.fixture(scope="module")
def sweep(equal_plans_stay) -> Sweep:
    return Sweep(problem_of(), BLOCK, KEEP)


@pytest.fixture(scope="module")
def one_pass(sweep) -> TopDesigns:
    return screen(sweep.problem, BLOCK, keep=KEEP).top


@pytest.fixture(scope="module")
def portions(sweep) -> list[Portion]:
    """Of chunks of two blocks."""
    work = ChunkWork(sweep, edges_of(sweep))
    return [work(chunk) for chunk in cut(work.study, [(0, sweep.block_count)], 2)]


def same(a, b, names) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


FIELDS = [f.name for f in dataclasses.fields(TopDesigns)]
OF_PORTIONS = [f.name for f in dataclasses.fields(Portion)]


def test_blocks_by_number_are_those_of_a_pass(sweep):
    pairs = list(sweep.blocks())
    assert len(pairs) == sweep.block_count > 24
    for number, (plan, level) in enumerate(pairs):
        every = np.stack([a.ravel() for a in np.meshgrid(plan, level)], axis=-1)
        assert set(sweep.block_of(every)) == {number}


@pytest.mark.parametrize("seed", range(20))
def test_any_order_equals_one_pass(sweep, one_pass, portions, seed):
    """Put together as a random tree, some portions twice; points that tie go to the same address."""
    rng = np.random.default_rng(seed)
    heap = [portions[i] for i in rng.permutation(len(portions))]
    heap += [portions[i] for i in rng.integers(0, len(portions), 6)]
    while len(heap) > 1:
        i, j = rng.choice(len(heap), 2, replace=False)
        heap = [p for k, p in enumerate(heap) if k not in (i, j)] + [merged(heap[i], heap[j])]
    assert same(heap[0].top_designs(sweep.tall), one_pass, FIELDS)
    assert heap[0].points == sweep.axes.plan_count * sweep.axes.level_count


def test_merging_is_associative_commutative_and_idempotent(portions):
    a, b, c = portions[0], portions[5], merged(portions[3], portions[4])
    assert same(merged(a, b), merged(b, a), OF_PORTIONS)
    assert same(merged(merged(a, b), c), merged(a, merged(b, c)), OF_PORTIONS)
    assert same(merged(c, c), c, OF_PORTIONS)


def test_ties_are_there(one_pass, portions):
    """Otherwise order would not be tried: equal bests, and points of the front that several chunks have."""
    assert len(np.unique(one_pass.best)) < len(one_pass.best)
    fronts = np.concatenate([portion.front for portion in portions])
    assert len(np.unique(fronts, axis=0)) < len(fronts)


def test_cut_elsewhere_is_the_same(sweep, one_pass):
    work = ChunkWork(sweep, edges_of(sweep))
    for size in (1, 5, 7, sweep.block_count):
        gathered = PortionMerger(work(chunk) for chunk in cut(work.study, [(0, sweep.block_count)], size))
        whole = gathered.merged_portion()
        assert whole is not None
        assert same(whole.top_designs(sweep.tall), one_pass, FIELDS)
        assert gathered.least == one_pass.least


def test_what_would_be_counted_twice_is_refused(sweep, portions):
    work = ChunkWork(sweep, portions[0].edges)
    across = work(Chunk(work.study, 1, 2))
    with pytest.raises(ValueError, match="counted twice"):
        merged(portions[0], across)
    with pytest.raises(ValueError, match="two studies"):
        merged(portions[0], dataclasses.replace(portions[1], study="other"))


def test_nothing_feasible_is_the_same_too():
    problem = problem_of(1.0)
    sweep = Sweep(problem, BLOCK, KEEP)
    one = screen(problem, BLOCK, keep=KEEP).top
    work = ChunkWork(sweep, edges_of(sweep))
    whole = PortionMerger(map(work, cut(work.study, [(0, sweep.block_count)], 3))).merged_portion()
    assert whole is not None
    assert same(whole.top_designs(sweep.tall), one, set(FIELDS) - {"edges"})


def test_work_goes_to_another_process_in_full(sweep, portions):
    work = ChunkWork(sweep, portions[0].edges)
    again = pickle.loads(pickle.dumps(work))
    assert again.study == work.study == study_of(sweep)
    fresh = Sweep(again.problem, again.block, again.keep)
    assert study_of(fresh) == work.study
    assert same(again(Chunk(work.study, 2, 2)), portions[1], set(OF_PORTIONS) - {"seconds"})


@pytest.fixture
def left(sweep, portions, tmp_path) -> Path:
    """The folder of a run that finished."""
    (tmp_path / "run" / FOLDER).mkdir(parents=True)
    for portion in portions:
        save_portion(portion, sweep, tmp_path / "run" / FOLDER)
    return tmp_path / "run"


def again(problem: Problem, resume: Path, run: Path | str = ""):
    return screen_in_chunks(problem, Serial(chunk_s=1e-9), BLOCK, silent, KEEP, ChunkFolders(str(run), str(resume)))


def test_files_hold_portions(sweep, portions, left):
    stored = StoredChunks([left / FOLDER], sweep)
    assert len(stored.portions) == len(portions) > 15
    assert stored.gaps(sweep.block_count) == []
    for one, other in zip(portions, stored.portions, strict=True):
        assert same(one, other, OF_PORTIONS)


def test_a_changed_bit_is_seen_or_changes_nothing(sweep, portions, left):
    path = sorted((left / FOLDER).glob("*.parquet"))[0]
    data, whole, seen = path.read_bytes(), load_portion(path), 0
    for at in np.random.default_rng(0).integers(0, len(data) * 8, 60).tolist():
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            result = load_portion(path)
        except ConfigError:
            seen += 1
            continue
        assert same(result, whole, OF_PORTIONS)
    assert seen > 30


def test_resumed_is_what_is_missing(sweep, one_pass, left, tmp_path):
    """Files gone, cut short, overwritten, renamed, of another study: what is missing is computed, the rest is taken."""
    files = sorted((left / FOLDER).glob("*.parquet"))
    files[0].unlink()
    files[3].write_bytes(files[3].read_bytes()[:-9])
    data = files[4].read_bytes()
    files[4].write_bytes(data[:2000] + bytes(2000) + data[4000:])
    files[6].rename(files[6].with_name(files[6].name.replace("-2.parquet", "-3.parquet")))
    (left / FOLDER / f"{'0' * 16}-0-2.parquet").write_bytes(b"of another study")
    (left / FOLDER / f"{files[8].name}.77.partial").write_bytes(b"half-written")
    (tmp_path / "next").mkdir()
    result = again(sweep.problem, left, tmp_path / "next")
    assert same(result.top, one_pass, FIELDS)
    assert result.counts["damaged chunks computed again"] == 3
    assert 0 < result.counts["points from earlier chunks"] < result.evaluated == sweep.axes.plan_count * 20
    rest = again(sweep.problem, tmp_path / "next")
    assert rest.counts == {"points from earlier chunks": result.evaluated}
    assert same(rest.top, one_pass, FIELDS)


def test_chunks_of_another_cut_fill_gaps(sweep, one_pass, left):
    """One chunk of three blocks lies across two of two: it is taken, they are not, and no block is counted twice."""
    work = ChunkWork(sweep, edges_of(sweep))
    for path in (left / FOLDER).glob(f"{work.study[:16]}-0-*"):
        path.unlink()
    save_portion(work(Chunk(work.study, 0, 3)), sweep, left / FOLDER)
    assert same(again(sweep.problem, left).top, one_pass, FIELDS)


def test_chunks_of_another_study_are_refused(sweep, left, tmp_path):
    with pytest.raises(ConfigError, match="is of another study: repeat the overrides"):
        again(problem_of(6e5), left)
    grid = Grid(BLOCK, KEEP, resume=str(tmp_path)).over(Serial())
    with pytest.raises(ConfigError, match="has no chunks to continue from: leave runner out"):
        grid.refuse(sweep.problem)


def test_a_full_disk_costs_files_only(sweep, one_pass, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    result = again(sweep.problem, Path(""), tmp_path)
    assert same(result.top, one_pass, FIELDS)
    assert result.counts["chunks that could not be written"] == sweep.block_count
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_an_interrupted_grid_keeps_finished_chunks(sweep, one_pass, tmp_path):
    heard = []

    def stop(progress):
        heard.append(progress.done)
        if len(heard) == 9:
            raise KeyboardInterrupt

    grid = Grid(BLOCK, KEEP, checkpoint=str(tmp_path / "state")).over(Serial(chunk_s=1e-9))
    trace = grid.run(sweep.problem, 0, stop)
    assert trace.claim == (
        f"interrupted after {heard[-1]:,} of {sweep.axes.plan_count * 20:,} points: best so far;"
        f" continue with search.resume={tmp_path}"
    )
    assert len(list((tmp_path / FOLDER).iterdir())) == 9
    result = again(sweep.problem, tmp_path)
    assert result.counts["points from earlier chunks"] == heard[-1]
    assert same(result.top, one_pass, FIELDS)


@pytest.mark.slow
def test_a_killed_grid_continues_with_what_is_missing(sweep, one_pass, tmp_path):
    """Killed when some chunks are there; `qa/killed.py` kills at random instants."""
    (tmp_path / "work").write_bytes(pickle.dumps(ChunkWork(sweep, edges_of(sweep))))
    code = (
        "import pickle, time\nfrom codesign.executors import Serial\n"
        "from codesign.search.exhaustive import sweep\n"
        "from codesign.search.exhaustive.chunks import ChunkFolders, screen_in_chunks\n"
        "sweep.distinct_plans = lambda scenarios, space, plans: plans\n"
        "work, slow = pickle.load(open('work', 'rb')), lambda progress: time.sleep(0.05)\n"
        "screen_in_chunks(work.problem, Serial(chunk_s=1e-9), work.block, slow, work.keep, ChunkFolders('.'))"
    )
    settings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=settings)
    while len(list(tmp_path.glob(f"{FOLDER}/*.parquet"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    result = again(sweep.problem, tmp_path)
    assert 0 < result.counts["points from earlier chunks"] < result.evaluated
    assert same(result.top, one_pass, FIELDS)


def test_searches_that_begin_with_a_grid_take_a_runner():
    """Of plans alone, where no descent follows."""
    problem, search = made(hardware={}, objective=Objective("time_s")), GridThenGradient(BLOCK, KEEP, candidates=2)
    one, other = (each.run(problem, 0) for each in (search, search.over(Serial(chunk_s=1e-9))))
    assert one.counts["points"] == other.counts["points"] == 6
    assert all(np.array_equal(column, other.points[name]) for name, column in one.points.items())
    both = GridThenProof().over(Local(2))
    assert both.grid.runner == both.proof.runner == Local(2)
    with pytest.raises(ConfigError, match=r"runner = Local: Gradient is one search in one process; take search=grid, "):
        Gradient().over(Local(2))
