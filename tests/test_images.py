"""Images in prompts: what a vision encoder does for them, by hand from the configuration, and what they bring along."""

import json

import jax
import jax.numpy as jnp
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs import interpreted
from codesign.model.metrics import evaluate
from codesign.model.workloads import Layout, Plan, Precision, VisionEncoder, transformer_from_dict
from codesign.model.workloads.lowering import encoder_ops

VISION = {
    "deepstack_visual_indexes": [1], "depth": 4, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 64,
    "in_channels": 3, "intermediate_size": 256, "num_heads": 4, "num_position_embeddings": 64,
    "out_hidden_size": 128, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
TEXT = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 512, "vocab_size": 32000, "model_type": "qwen3_vl_text", "tie_word_embeddings": True,
}  # fmt: skip
SEEING = {
    "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "text_config": TEXT,
    "vision_config": VISION,
}  # fmt: skip
# patches of 3 x 2 x 16^2 numbers; 4 layers of 64 x (4 x 64 + 2 x 256) weights, 64 patches attended;
# 16 tokens through two projections of 256 x (256 + 128)
BY_HAND = 64 * (2 * 64 * 1536 + 4 * (2 * 64 * (4 * 64 + 2 * 256) + 4 * 64 * 64)) + 16 * 2 * 2 * 256 * (256 + 128)
SERVED = ("workload=continuous", "accelerator=h200", "framework=none", "plan.micro_batch=16", "cluster.device_count=4")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("seeing") / "config.json"
    path.write_text(json.dumps(SEEING))
    return path


def scenario(path, *overrides):
    return scenario_from_config("model=hf", f"model.path={path}", "tp=4", *SERVED, *overrides)


def vision() -> VisionEncoder:
    result = transformer_from_dict(SEEING, "seeing").vision
    assert result is not None
    return result


def work(images: float, tp: float = 1.0, encoder: VisionEncoder | None = None):
    """Operations of a step with so many images."""
    layout = Layout(Plan(tp=tp), jnp.asarray(tp))
    return encoder_ops(encoder or vision(), layout, Precision(), jnp.asarray(images), phase="prefill")


def product_flops(ops) -> float:
    return sum(float(op.count * op.work.flops) for op in ops if hasattr(op, "work") and op.kernel != "elementwise")


def test_the_encoder_of_a_configuration_is_counted_by_hand():
    result = vision()
    assert float(result.patches) == 64  # the grid of positions: 8 x 8
    assert float(result.tokens_per_image()) == 16
    assert float(result.flops_per_image()) == BY_HAND
    assert product_flops(work(3.0)) == pytest.approx(3 * BY_HAND, rel=1e-6)
    assert product_flops(work(0.25)) == pytest.approx(BY_HAND / 4, rel=1e-6)  # a quarter of a step has one
    assert product_flops(work(0.0)) == 0


def test_tensor_ranks_share_the_layers():
    """All but the product of the patches, which each has for itself; two all-reduces of the patches a layer."""
    own = 64 * 2 * 64 * 1536
    assert product_flops(work(2.0, tp=4.0)) == pytest.approx(2 * ((BY_HAND - own) / 4 + own), rel=1e-6)
    sums = [op for op in work(2.0, tp=4.0) if getattr(op, "operation", "") == "all_reduce"]
    assert sum(float(op.count) for op in sums) == 8
    assert {float(op.nbytes) for op in sums} == {2 * 64 * 64 * 2.0}


@pytest.mark.parametrize(
    ("config", "patches", "tokens"),
    [
        ({"vision_config": VISION | {"image_size": 224}}, 196, 49),
        ({"vision_config": VISION | {"num_position_embeddings": None}}, 0, 0),
        # Gemma 3: 896 pixels, 4,096 patches pooled to 256 tokens
        ({"vision_config": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 896,
                            "patch_size": 14}, "mm_tokens_per_image": 256}, 4096, 256),
        # Llama 4: tiles of 336 pixels, of which half a side is shuffled into the width
        ({"vision_config": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 336,
                            "patch_size": 14, "pixel_shuffle_ratio": 0.5}}, 576, 144),
        # Mistral Small 3.1: merged as the whole file says
        ({"vision_config": {"model_type": "pixtral", "hidden_size": 64, "num_hidden_layers": 4, "image_size": 1540,
                            "num_attention_heads": 4, "patch_size": 14}, "spatial_merge_size": 2}, 12100, 3025),
        # Kimi K2.5: the grid of its learned positions
        ({"vision_config": {"vt_hidden_size": 64, "vt_num_hidden_layers": 4, "vt_num_attention_heads": 4,
                            "patch_size": 14, "merge_kernel_size": [2, 2], "init_pos_emb_height": 64,
                            "init_pos_emb_width": 64}}, 4096, 1024),
        # Gemma 4: 280 tokens pooled from 3 x 3 patches; its table of positions counts rows and columns apart
        ({"vision_config": {"model_type": "gemma4_vision", "hidden_size": 64, "num_hidden_layers": 4,
                            "num_attention_heads": 4, "patch_size": 16, "pooling_kernel_size": 3,
                            "default_output_length": 280, "position_embedding_size": 10240}}, 2520, 280),
    ],
)  # fmt: skip
def test_an_image_is_as_large_as_the_file_says(config, patches, tokens):
    result = transformer_from_dict(SEEING | config, "seeing").vision
    assert result is not None
    assert (float(result.patches), float(result.tokens_per_image())) == (patches, tokens)


def test_images_bring_their_tokens_and_their_work_into_the_prompt(model_file):
    """A prompt of 100 tokens and 3 images of 16 has the cache and the attention of one of 148."""
    seen = scenario(model_file, "workload.input_tokens=100", "workload.images=3").workload
    read = scenario(model_file, "workload.input_tokens=148").workload
    assert float(seen.prompt_tokens()) == float(read.prompt_tokens()) == 148
    assert float(seen.context()) == float(read.context())
    layout = Layout(Plan(tp=4.0, micro_batch=16.0), jnp.asarray(4.0))
    assert float(seen.held_tokens(layout)) == pytest.approx(float(read.held_tokens(layout)))
    assert float(seen._flops() - read._flops()) == pytest.approx(3 * BY_HAND, rel=1e-6)
    carried = seen.mixed_step(layout).images
    assert float(carried) == pytest.approx(float(seen.rhythm(layout).state.tokens) * 3 / 148)
    cached = replace(seen, {"cached_ratio": jnp.asarray(0.5)})
    assert float(cached._flops() - replace(read, {"cached_ratio": jnp.asarray(0.5)})._flops()) == pytest.approx(
        1.5 * BY_HAND, rel=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["serving", "continuous", "at_rate", "disaggregated"])
def test_requests_with_images_take_longer_than_text_of_their_length(model_file, kind):
    """First tokens wait for the encoder; without images nothing of it is priced."""
    more = ("prefill=same", "plan.prefill_devices=4") if kind == "disaggregated" else ()
    told = ("model.image_patches=4096", f"workload={kind}", *more)
    tokens = {"seen": ("workload.input_tokens=100", "workload.images=4"), "read": ("workload.input_tokens=4196",)}
    result = {name: evaluate(scenario(model_file, *given, *told)).flat() for name, given in tokens.items()}
    assert float(result["seen"]["ttft_s"]) > 1.1 * float(result["read"]["ttft_s"])
    assert float(result["seen"]["energy_j"]) > float(result["read"]["energy_j"])
    assert all(jnp.isfinite(value).all() for value in result["seen"].values())


@pytest.mark.slow
def test_work_is_smooth_in_images_and_patches():
    """Slopes of FLOPs and bytes against finite differences; plain, `jit` and `vmap` agree; finite at the ends."""

    encoder = vision()

    def asked(values):
        images, patches = values
        ops = [op for op in work(images, 4.0, replace(encoder, {"patches": patches})) if hasattr(op, "work")]
        return jnp.stack([sum(op.count * op.work.flops for op in ops), sum(op.count * op.work.nbytes for op in ops)])

    for at in (jnp.array([3.0, 64.0]), jnp.array([0.3, 1024.0])):
        slopes = jax.jit(jax.jacobian(asked))(at)
        for axis in range(2):
            along = 1e-4 * jnp.eye(2)[axis]
            numeric = (asked(at + along) - asked(at - along)) / 2e-4
            assert slopes[:, axis].tolist() == pytest.approx(numeric.tolist(), rel=1e-6)
        assert jax.jit(asked)(at).tolist() == pytest.approx(asked(at).tolist(), rel=1e-12)
        assert jax.vmap(asked)(at[None])[0].tolist() == pytest.approx(asked(at).tolist(), rel=1e-12)
    for images, patches in ((0.0, 0.0), (0.0, 1e6), (1e4, 0.0), (1e4, 1e6)):
        assert jnp.isfinite(asked(jnp.array([images, patches]))).all()


@pytest.mark.slow
def test_first_tokens_are_log_convex_in_hardware_at_given_images(model_file):
    """Slopes along bandwidth and peak against finite differences, and the middle of two designs against both."""
    base = scenario(model_file, "model.image_patches=1024", "workload.images=4", "workload=serving")

    def first(logs):
        changed = replace(base, {
            "cluster.accelerator.hbm.bandwidth_bytes_per_s": jnp.exp(logs[0]),
            "cluster.accelerator.peak_flops_per_s.bf16": jnp.exp(logs[1]),
        })  # fmt: skip
        return jnp.log(evaluate(changed).extra["ttft_s"])

    at = jnp.log(jnp.array([4.8e12, 989e12]))
    slopes = interpreted(jax.grad(first), always=True)(at)
    for axis in range(2):
        along = 1e-5 * jnp.eye(2)[axis]
        numeric = (first(at + along) - first(at - along)) / 2e-5
        assert float(slopes[axis]) == pytest.approx(float(numeric), rel=1e-3, abs=1e-7)
    apart = jnp.array([0.7, -0.7])
    assert float(first(at)) <= float(first(at + apart) + first(at - apart)) / 2 + 1e-9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("model=llama31_8b", "workload.images=2"), "llama31_8b has no vision encoder; allowed: 0"),
        (("model=hf", "model.path={path}", "workload.images=-1"), "workload.images = -1 is outside"),
        (("model=hf", "model.path={path}", "model.image_patches=0.5"), "image_patches = 0.5 is not a whole number"),
        (
            ("model=hf", "model.path={unsized}", "workload.images=1"),
            "does not say how large an image is; model.vi",
        ),
    ],
)
def test_images_that_cannot_be_are_refused_in_one_line(model_file, tmp_path, given, said):
    unsized = tmp_path / "config.json"
    unsized.write_text(json.dumps(SEEING | {"vision_config": VISION | {"num_position_embeddings": None}}))
    with pytest.raises(ConfigError, match=said):
        scenario_from_config(*(text.format(path=model_file, unsized=unsized) for text in given), *SERVED)
