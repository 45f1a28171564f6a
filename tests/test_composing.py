"""What the tests compose in parts is what Hydra composes file by file."""

import composing
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf

from codesign.config import conf_dir

CHOICES = [
    ["experiment=serve_deepseek_v3", "fabric=nvl72", "scale_out=rail_optimised_ndr", "hydra/launcher=joblib"],
    ["accelerator=b200", "workload=disaggregated", "prefill=same", "die=h100_sxm", "plan.tp=4"],
]


def composed(overrides):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("config", overrides=overrides, return_hydra_config=True)
    types = {key: OmegaConf.get_type(config.hydra, key) for key in config.hydra if not config.hydra._is_missing()}
    return OmegaConf.to_yaml(config, resolve=False), types


@pytest.mark.parametrize("overrides", CHOICES, ids=" ".join)
def test_parts_come_to_the_same(overrides, monkeypatch):
    in_parts = composed(overrides)

    def at_once(self, defaults, repo):
        return composing.merge(self, defaults, composing.Fresh(repo))

    monkeypatch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", at_once)
    assert composed(overrides) == in_parts
