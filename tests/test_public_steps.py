"""Steps of published TPU recipes: rates that one share was fitted to, and runs that nothing was fitted to."""

import pytest

from codesign.commands.launch import with_launch
from codesign.config import scenario_from_config
from codesign.config.starting import started
from codesign.model.metrics import evaluate

pytestmark = pytest.mark.slow
FITTED = [  # configs/v5p/README.md of MaxText: chips, tensor ranks, sequences, policy, shape, TFLOP/s of a chip
    (64, 4, 7, "minimal", (8192, 32, 64, 28672), 328), (64, 4, 3, "minimal", (8192, 64, 64, 28672), 323),
    (128, 8, 1, "minimal", (8192, 64, 128, 57344), 315), (256, 8, 1, "minimal", (8192, 64, 128, 57344), 316),
    (512, 8, 1, "minimal", (16384, 64, 128, 57344), 308), (512, 8, 2, "full", (16384, 128, 128, 57344), 294),
]  # fmt: skip
TRAIN = "python3 -m MaxText.train base.yml"


def seconds(command: str, *overrides: str) -> float:
    words, _ = with_launch(f"{TRAIN} {command}", overrides)
    return float(evaluate(scenario_from_config(*started(list(words)))).time_s)


@pytest.mark.parametrize(("chips", "tp", "batch", "policy", "shape", "rate"), FITTED)
def test_steps_of_one_slice_of_v5p(chips: int, tp: int, batch: int, policy: str, shape: tuple, rate: float):
    """FLOPs as MaxText counts them: 6 a weight and token, and attention without the causal half."""
    hidden, layers, heads, width = shape
    weights = layers * (4 * hidden * heads * 128 + 3 * hidden * width) + 32000 * hidden
    flops = (6 * weights + 12 * 2048 * heads * 128 * layers) * batch * 2048
    predicted = seconds(
        f"model_name=llama3.1-70b per_device_batch_size={batch} max_target_length=2048 remat_policy={policy}"
        f" ici_fsdp_parallelism={chips // tp} ici_tensor_parallelism={tp}",
        "accelerator=tpu_v5p", f"workload.model.hidden={hidden}", f"workload.model.layers={layers}",
        f"workload.model.attention.heads={heads}", f"workload.model.attention.kv_heads={heads}",
        f"workload.model.feed_forward.width={width}", "workload.model.vocab=32000",
    )  # fmt: skip
    assert predicted == pytest.approx(flops / (rate * 1e12), rel=0.08)
