"""The peer's search spaces: as many points as it counts, plans in the order it would put them."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest

from codesign.evidence import calculon
from codesign.evidence.reproduction import available, load

pytestmark = pytest.mark.slow


def test_share_hides_as_much_as_asked():
    rng = np.random.default_rng(0)
    share = rng.uniform(0.01, 1.0, 1000)
    sync, gather, backward, forward = 10.0 ** rng.uniform(-3, 3, (4, 1000))

    def hides(x):
        return np.minimum(x * backward, sync) + np.minimum(x * forward, gather)

    result = np.asarray(calculon._hiding(*map(jnp.asarray, (hides(share), sync, gather, backward, forward))))
    np.testing.assert_allclose(hides(result), hides(share), rtol=1e-9)
    assert (result <= share * (1 + 1e-9)).all()  # the least that does


def test_spaces_are_as_large_as_the_peer_counts():
    load(available()["calculon_search"])
    peer_spaces = importlib.import_module("peer_spaces")
    for name, space in peer_spaces.SPACES.items():
        frame = peer_spaces.points(name)
        assert len(frame) == space.points
        assert not frame.duplicated().any()
        assert (frame["exe_tensor_par"] * frame["exe_pipeline_par"] * frame["exe_data_par"] == space.processors).all()


@pytest.fixture(scope="module")
def runs(reference_dir):
    """Published runs that differ in numbers only: training in half precision on one system."""
    frame = calculon.read(reference_dir / "calculon")
    alike = frame["exe_training"] & (frame["system"] == "a100_80g") & (frame["exe_tensor_par_overlap"] == "none")
    frame = frame[alike & frame["exe_datatype"].eq("float16")]
    answers = calculon.predict_alike(frame, block=len(frame))
    return frame.assign(ours=answers["total_time"], memory=answers["first_tier_memory"])


def test_runs_agree_closely_enough_to_choose_by(runs):
    assert (runs["ours"] / runs["total_time"] - 1).abs().max() < 4e-3
    assert (runs["memory"] / runs["proc_mem_tier1_cap_req"] - 1).abs().max() < 1e-5


def test_order_of_plans_is_the_peers(runs):
    """Of the plans published for one job, the one chosen costs the peer nothing more than its own choice."""
    jobs = runs.groupby(["app", "exe_num_procs", "exe_batch_size"])
    several = [part for _, part in jobs if len(part) > 2]
    assert several
    for part in several:
        assert part["ours"].rank().equals(part["total_time"].rank())
