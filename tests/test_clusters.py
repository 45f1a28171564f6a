"""Ray and Slurm themselves, started here: a worker and a node killed under a search, and the answer of one process.

Ray is installed with what tests need. Slurm's daemons are Debian's packages and run as root; where they are missing the
reason is given. `qa/clusters.py` does the same with larger searches and with multiruns.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from contracts.problems import made
from test_searches_in_parts import listed, same, two

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "qa"))
from cluster_daemons import lacking, ray_of_this_machine, slurm_of_this_machine
from clusters import grid, grid_over

sys.path.pop(0)


@pytest.fixture(scope="module", params=["ray", "slurm"])
def there(request, tmp_path_factory):
    if lacking(request.param):
        pytest.skip(lacking(request.param))
    with ExitStack() as stack:
        place = tmp_path_factory.mktemp("daemons")
        started = ray_of_this_machine() if request.param == "ray" else slurm_of_this_machine(place)
        yield stack.enter_context(started)


@pytest.mark.slow
def test_mixes_and_listed_values_are_those_of_one_process(there, tmp_path):
    """Replies outlive the connection that they came over: bounds are read after it has ended."""
    mix, problem = two(), made()
    same(mix.run(problem, 0), mix.over(there.runner(1e-9, tmp_path)).run(problem, 0))
    same(listed(problem).run(problem, 0), listed(problem).over(there.runner(1e-9, tmp_path)).run(problem, 0))


@pytest.mark.slow
def test_a_worker_and_a_node_are_killed_under_a_grid(there, tmp_path):
    """Last: of the two nodes one is left."""
    said = grid_over(there, grid(levels=20), tmp_path, block=1024)
    assert "1 node killed" in said
    assert said.endswith("equal to one process")
