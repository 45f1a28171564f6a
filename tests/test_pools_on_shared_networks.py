"""Two pools on networks whose links are loaded: the transfer between the pools is no traffic of either."""

import pytest

from codesign.config import scenario_from_config
from codesign.search.results import numbers_of

BASE = (
    "calibration=h100_sxm_roofline", "framework=none", "model=llama31_8b", "workload=disaggregated", "prefill=same",
    "plan=serving_node", "cluster.device_count=8", "plan.tp=4", "plan.prefill_devices=4", "plan.micro_batch=16",
)  # fmt: skip
NETWORKS = {
    "shared": ("fabric=nvlink4_shared",),
    "queued": ("fabric=nvlink4_queued", "scale_out=infiniband_ndr_queued"),
}


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_loaded_links_slow_the_decoding_pool(network):
    loaded, free = (numbers_of(scenario_from_config(*BASE, *more)) for more in (NETWORKS[network], ("fabric=nvlink4",)))
    assert loaded["tpot_s"] >= free["tpot_s"]
    assert loaded["requests_per_s"] <= free["requests_per_s"] * (1 + 1e-9)
    if network == "queued":
        assert loaded["usage.scale_up.background"] < 1
        assert loaded["tpot_s"] > free["tpot_s"]
