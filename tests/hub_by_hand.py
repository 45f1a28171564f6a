"""Small configurations with the keys of published ones, written here for architectures without a file in `data/hub`."""

from typing import Any

DELTA = {
    "attn_output_gate": True, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
    "mlp_only_layers": [], "mtp_num_hidden_layers": 1,
}  # fmt: skip


def language(architecture: str, **part: Any) -> dict[str, Any]:
    """A model with a vision part, whose language model stands in an object of its own."""
    return {
        "architectures": [architecture],
        "text_config": part,
        "vision_config": {"depth": 27},
        "tie_word_embeddings": False,
    }


def latent(hidden: int, heads: int, q_rank: int, nope: int, value: int, **more: Any) -> dict[str, Any]:
    """Latent attention before a mixture, in DeepSeek's keys."""
    return {
        "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": q_rank,
        "kv_lora_rank": 512, "qk_nope_head_dim": nope, "qk_rope_head_dim": 64, "v_head_dim": value,
        "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


def grouped(hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, vocab: int) -> dict[str, Any]:
    """Grouped-query attention."""
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocab,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "rms_norm_eps": 1e-6,
    }  # fmt: skip


def dense(hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocab: int, **more: Any) -> dict[str, Any]:
    """A model with the shape of a Llama."""
    return {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": width,
        "vocab_size": vocab, "tie_word_embeddings": False, **more,
    }  # fmt: skip


INT4 = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "input_activations": None, "targets": ["Linear"],
            "weights": {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"},
        },
    },
    "ignore": [
        "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
}  # fmt: skip
"""Experts in groups of 32, all else left alone."""

BY_HAND: dict[str, dict[str, Any]] = {
    "minimax_m25": grouped(3072, 62, 48, 8, 128, 200064)
    | {
        "architectures": ["MiniMaxM2ForCausalLM"], "intermediate_size": 1536, "num_local_experts": 256,
        "num_experts_per_tok": 8, "shared_intermediate_size": 0, "attn_type_list": [1] * 62, "use_mtp": True,
        "num_mtp_modules": 3, "mtp_transformer_layers": 1, "tie_word_embeddings": False, "use_qk_norm": True,
        "quantization_config": {
            "quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate", "lm_head"],
        },
    },
    "kimi_k25": language(
        "KimiK25ForConditionalGeneration",
        **latent(
            7168, 64, 1536, 128, 128, num_hidden_layers=61, n_routed_experts=384, first_k_dense_replace=1,
            intermediate_size=18432, vocab_size=163840, num_nextn_predict_layers=0, quantization_config=INT4,
        ),
    ),
    "glm_5": latent(
        6144, 64, 2048, 192, 256, num_hidden_layers=78, n_routed_experts=256, first_k_dense_replace=3,
        intermediate_size=12288, vocab_size=154880, num_nextn_predict_layers=1, index_head_dim=128, index_n_heads=32,
        index_topk=2048, architectures=["GlmMoeDsaForCausalLM"],
    ),
    "qwen35_397b_a17b": language(
        "Qwen3_5MoeForConditionalGeneration",
        **grouped(4096, 60, 32, 2, 256, 248320), **DELTA,
        layer_types=[*["linear_attention"] * 3, "full_attention"] * 15, linear_num_value_heads=64,
        moe_intermediate_size=1024, num_experts=512, num_experts_per_tok=10, shared_expert_intermediate_size=1024,
    ),
    "qwen35_122b_a10b": language(
        "Qwen3_5MoeForConditionalGeneration",
        **grouped(3072, 48, 32, 2, 256, 248320), **DELTA, linear_num_value_heads=64,
        moe_intermediate_size=1024, num_experts=256, num_experts_per_tok=8, shared_expert_intermediate_size=1024,
    ),
    "qwen35_27b": language(
        "Qwen3_5ForConditionalGeneration",
        **grouped(5120, 64, 24, 4, 256, 248320), **DELTA, intermediate_size=17408, linear_num_value_heads=48,
    ),
    "qwen3_vl_235b_a22b": language(
        "Qwen3VLMoeForConditionalGeneration",
        **grouped(4096, 94, 64, 4, 128, 151936), decoder_sparse_step=1, intermediate_size=12288, mlp_only_layers=[],
        moe_intermediate_size=1536, num_experts=128, num_experts_per_tok=8,
    ),
    "qwen3_vl_2b": language(
        "Qwen3VLForConditionalGeneration",
        **grouped(2048, 28, 16, 8, 128, 151936), intermediate_size=6144, tie_word_embeddings=True,
    ),
    "mimo_7b": grouped(4096, 36, 32, 8, 128, 151680)
    | {
        "architectures": ["MiMoForCausalLM"], "intermediate_size": 11008, "num_nextn_predict_layers": 1,
        "sliding_window": 32768, "max_window_layers": 32, "use_sliding_window": False, "tie_word_embeddings": False,
    },
    "mistral_7b": dense(4096, 32, 32, 8, 14336, 32000, max_position_embeddings=32768, sliding_window=None),
    "mistral_nemo_12b": dense(5120, 40, 32, 8, 14336, 131072, head_dim=128),
    "qwen25_7b": dense(3584, 28, 28, 4, 18944, 152064),
    "qwen25_72b": dense(8192, 80, 64, 8, 29568, 152064),
    "qwen3_8b": dense(4096, 36, 32, 8, 12288, 151936, head_dim=128),
    "qwen3_14b": dense(5120, 40, 40, 8, 17408, 151936, head_dim=128),
    "yi_34b": dense(7168, 60, 56, 8, 20480, 64000),
    "codellama_34b": dense(8192, 48, 64, 8, 22016, 32000),
}  # fmt: skip
