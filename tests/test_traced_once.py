"""Programs kept on disk: what comes back is what was traced, and anything else is traced anew."""

import shutil
import subprocess
import sys
from collections import OrderedDict

import equinox
import jax
import numpy as np
import pytest

from codesign import study_from_config
from codesign.core.disk_cache import keep_in
from codesign.core.jax_typed import make_jaxpr
from codesign.core.smooth import ceil
from codesign.jaxprs import program
from codesign.jaxprs.program import flatten
from codesign.search.branch_and_bound.node_relaxation import oracle_for
from codesign.search.branch_and_bound.oracle import rows_of
from codesign.staging import base_of, model, points, program_cache
from codesign.staging.program_cache import (
    NotCacheable,
    TracedProgram,
    kinds_as_plain,
    structure_as_plain,
    structure_from_plain,
)

STUDY = "experiment=train_gpt3_175b"
STORES = [(model, "_bases"), (model, "_models"), (model, "_programs"), (points, "_prepared")]


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A folder that programs are kept in, and nothing kept in this process; calls forget what this process keeps."""

    for module, store in STORES:
        monkeypatch.setattr(module, store, OrderedDict())

    def forget() -> None:
        for module, store in STORES:  # emptied: a store that is replaced would live on until the test has ended
            getattr(module, store).clear()

    keep_in(tmp_path)
    yield forget
    keep_in(None)


@pytest.fixture(scope="module")
def study():
    return study_from_config(STUDY).problem


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    """(a folder with what is kept of the study, answers, equations): traced and packed once for all who read a copy."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patched:
        for module, store in STORES:
            patched.setattr(module, store, OrderedDict())
        keep_in(folder)
        result, count = asked(study), len(base_of(study.scenario).program.equations)
        keep_in(None)
    return folder, result, count


def kept_in(folder, kind="programs"):
    return sorted((folder / kind).glob("*.json"))


def asked(problem):
    """Rows, slopes and what the walk says."""
    oracle, rng = oracle_for(problem, rows_of(problem), 64), np.random.default_rng(0)
    plan, u = np.resize(oracle.sample(rng, 32), 32), rng.uniform(size=(32, len(oracle.variables)))
    result, known = oracle.tangents(plan, u, 50.0), oracle.judged()
    told = [(name, proof.why if hasattr(proof, "why") else repr(proof)) for name, proof in sorted(known.rows.items())]
    return [result.exact, result.affine, result.broken, repr(told), repr(known.rules)]


@pytest.mark.slow
@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("experiment", ["train_gpt3_175b", "serve_deepseek_v3"])
def test_what_comes_back_is_what_was_traced(disk, tmp_path, experiment, monkeypatch):
    """The same equations, places and structure; rows, slopes and proofs to the last bit."""
    problem = study_from_config(f"experiment={experiment}").problem
    traced, first = base_of(problem.scenario), asked(problem)
    disk()
    monkeypatch.setattr(model, "account", None)  # nobody traces
    monkeypatch.setattr(points, "packing_of", None)  # nor packs
    again = base_of(problem.scenario)
    assert again is not traced
    assert (again.structure, again.avals) == (traced.structure, traced.avals)
    assert again.program.shapes == traced.program.shapes
    for one, other in zip(again.program.equations, traced.program.equations, strict=True):
        assert (one.name, one.primitive, one.inputs, one.outputs) == (
            other.name, other.primitive, other.inputs, other.outputs
        )  # fmt: skip
        assert one.where == other.where
        assert one.inner is not None or one.params == other.params
    for one, other in zip(asked(problem), first, strict=True):
        assert one == other if isinstance(one, str) else np.array_equal(one, other, equal_nan=True)
    assert kept_in(tmp_path)
    assert kept_in(tmp_path, "packs")


@pytest.mark.slow
def test_another_process_reads_it(written):
    """Nothing of the process that traced is needed."""
    folder, _, count = written
    asks = f"""
import jax; jax.config.update("jax_enable_x64", True)
from pathlib import Path
from codesign.core.disk_cache import keep_in; keep_in(Path({str(folder)!r}))
from codesign import study_from_config
from codesign.staging import base_of, model
model.account = None
print(len(base_of(study_from_config({STUDY!r}).problem.scenario).program.equations))
"""
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == count


@pytest.mark.slow
@pytest.mark.parametrize("damage", [
    lambda text: "", lambda text: text[: len(text) // 2], lambda text: "[1, 2]", lambda text: "[[]]",
    lambda text: text.replace("mul", "add", 1), lambda text: text.partition("\n")[2],
])  # fmt: skip
@pytest.mark.usefixtures("disk")
def test_what_is_damaged_is_traced_anew(study, written, tmp_path, damage):
    """And kept whole again."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    (file,) = kept_in(tmp_path)
    whole = file.read_text()
    file.write_text(damage(whole))
    assert len(base_of(study.scenario).program.equations) == written[2]
    assert file.read_text() == whole


@pytest.mark.slow
@pytest.mark.usefixtures("disk")
def test_another_module_or_size_is_another_program(study, written, tmp_path, monkeypatch):
    """The key has the text of every module, and shapes and types of numbers."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    scenario = study.scenario
    monkeypatch.setattr(program_cache, "_modules", lambda: "others")
    base_of(scenario)
    assert len(kept_in(tmp_path)) == 2
    leaves, structure = jax.tree.flatten(scenario)
    wider = [np.zeros((2, *np.shape(leaf))) for leaf in leaves]
    made = TracedProgram(base_of(scenario).program, structure, ())
    assert program_cache.traced_once(lambda: made, structure, [model._shape(leaf) for leaf in wider]) is made
    assert len(kept_in(tmp_path)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("damage", [
    lambda text: text[: len(text) // 2], lambda text: text.replace("mul", "add", 1),
    lambda text: text.partition("\n")[2],
])  # fmt: skip
@pytest.mark.usefixtures("disk")
def test_packs_that_are_damaged_are_made_anew(study, written, tmp_path, damage):
    """The same rows and slopes, and texts that are whole again."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    whole = {file: file.read_text() for file in kept_in(tmp_path, "packs")}
    assert whole
    for file, text in whole.items():
        file.write_text(damage(text))
    for one, other in zip(asked(study), written[1], strict=True):
        assert one == other if isinstance(one, str) else np.array_equal(one, other, equal_nan=True)
    assert whole == {file: file.read_text() for file in kept_in(tmp_path, "packs")}


def test_an_operation_that_was_traced_twice_is_one_kind(monkeypatch):
    """JAX forgets what it traced, and so do we; the text of a program does not tell when."""
    single = flatten(make_jaxpr(ceil)(np.float32(1.0))).equations
    first = flatten(make_jaxpr(ceil)(1.0)).equations
    monkeypatch.setattr(program, "_operations", OrderedDict())
    program._one_of.cache_clear()
    jax.clear_caches()
    second = flatten(make_jaxpr(ceil)(1.0)).equations
    assert first[0].inner is not None
    assert first[0].inner is not second[0].inner
    told, kinds = kinds_as_plain([*first, *second, *single])
    assert kinds == [0, 0, 1]
    assert told == kinds_as_plain([*second, *single])[0]


@pytest.mark.slow
@pytest.mark.usefixtures("disk")
def test_other_rows_and_slopes_are_other_packs(written, tmp_path):
    """Rows alone, rows with slopes, and those of another goal; another limit is the same one."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    known = set(kept_in(tmp_path, "packs"))
    assert len(known) == 2
    asked(study_from_config(STUDY, "objective.limits.capex_usd=1e8").problem)
    assert set(kept_in(tmp_path, "packs")) == known
    asked(study_from_config(STUDY, "objective.goal=energy_j").problem)
    assert set(kept_in(tmp_path, "packs")) > known


def test_somebody_elses_class_is_not_kept():
    """Nor is one named in a text, whatever it would do."""

    class Foreign(equinox.Module):
        number: float

    with pytest.raises(NotCacheable):
        structure_as_plain(jax.tree.structure(Foreign(1.0)))
    for hostile in (
        ["object", "subprocess", "Popen", ["args", "true"]], ["object", "codesign.core.errors", "CodesignError"],
        ["object", "codesign.core.disk_cache", "os.system"], ["object", "codesign.nothing", "X"],
        ["named", "builtins", "int"], ["leaf", 1], ["what"], [], ["tuple", ["leaf", 1], ["leaf", 0]],
        ["tuple", ["leaf", 0], ["leaf", 0]],
    ):  # fmt: skip
        with pytest.raises(NotCacheable):
            structure_from_plain(hostile)


@pytest.mark.slow
def test_a_program_with_loops_is_traced_each_time(disk, tmp_path):
    """Programs in programs have no words."""
    assert base_of(study_from_config("experiment=serve_goodput").problem.scenario).program.equations
    assert not kept_in(tmp_path)
