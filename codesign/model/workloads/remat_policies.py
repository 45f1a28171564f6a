"""Rematerialisation policies of MaxText by name, as levels, modules and shares of a plan.

A policy says which tensors of a layer are saved, which go to the host, and lets the rest run again. `full` saves a
layer's input; the custom policy of a recipe with `decoder_layer_input: offload` is `full` with the input on the host.
`mlpwo`, the network's result, is saved by policies that save all products; nothing reads it in the backward pass.

Source: `remat_policy` of [maxtext].
"""

from collections.abc import Mapping

from ...core.errors import ConfigError, suggestion

__all__ = ["REMAT_POLICIES", "custom_policy", "plan_of_policy"]

ALWAYS = ("layernorm", "mlp_act")  # no policy names results of norms and activation functions
QKV = ("query_proj", "key_proj", "value_proj")
DOTS = (*QKV, "out_proj", "mlpwi", "mlpwo")
REMAT_POLICIES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "full": ((), ()),
    "minimal": (DOTS, ()),
    "minimal_with_context": ((*DOTS, "context"), ()),
    "save_dot_except_mlp": ((*QKV, "out_proj"), ()),
    "save_dot_with_context_except_mlp": ((*QKV, "out_proj", "context"), ()),
    "save_dot_except_mlpwi": ((*QKV, "out_proj", "mlpwo"), ()),
    "save_qkv_proj": (QKV, ()),
    "save_out_proj": (("out_proj",), ()),
    "qkv_proj_offloaded": ((), QKV),
    "minimal_offloaded": ((), DOTS),
}
"""Policy -> (tensors saved, tensors on the host)."""
TENSORS = ("decoder_layer_input", "context", *QKV, "qkv_proj", "out_proj", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
PLACES = ("remat", "device", "offload")
READ_AS = {
    "decoder_layer_input": "attn_norm", "query_proj": "core_attn", "context": "attn_proj", "out_proj": "mlp_norm",
    "mlpwi": "mlp_act",
}  # fmt: skip
"""Tensor -> the module to offload whose input it is."""


def plan_of_policy(name: str) -> dict[str, str]:
    """Fields of a plan that a policy sets.

    Raises:
        ConfigError: no such policy.
    """
    if name not in REMAT_POLICIES:
        raise ConfigError(f"remat_policy = {name!r} does not exist{suggestion(name, REMAT_POLICIES)}")
    saved, far = REMAT_POLICIES[name]
    return _fields({"decoder_layer_input", *saved}, set(far))


def custom_policy(places: Mapping[str, str]) -> dict[str, str]:
    """Fields of a plan for `remat_policy: custom`, of tensor -> `remat`, `device` or `offload`.

    Raises:
        ConfigError: a tensor or a place that does not exist.
    """
    for tensor, place in places.items():
        if tensor not in TENSORS:
            raise ConfigError(f"{tensor!r} is no tensor of a layer{suggestion(tensor, TENSORS)}")
        if place not in PLACES:
            raise ConfigError(f"{tensor} = {place!r} does not exist{suggestion(place, PLACES)}")
    saved = {_tensor(tensor) for tensor, place in places.items() if place == "device"}
    far = {_tensor(tensor) for tensor, place in places.items() if place == "offload"}
    return _fields(saved | ({"decoder_layer_input"} - far), far)


def _tensor(name: str) -> str:
    """Name of the tensors that are saved or dropped together."""
    return {"qkv_proj": "query_proj", "mlpwi_0": "mlpwi", "mlpwi_1": "mlpwi"}.get(name, name)


def _fields(saved: set[str], far: set[str]) -> dict[str, str]:
    kept = saved | far
    inside = kept - {"decoder_layer_input", "mlpwo"}
    result = {"recompute": "none" if inside else "full"}
    if inside:
        gone = list(ALWAYS[:1])
        gone += ["qkv_proj"] if "query_proj" not in kept else []
        gone += ["context"] if "context" not in kept else []
        gone += ["out_proj"] if "out_proj" not in kept else []
        gone += ["mlp_act"] if "mlpwi" in kept else ["mlp"]
        result["recompute_modules"] = "+".join(gone)
    named = [READ_AS[tensor] for tensor in READ_AS if tensor in far]
    if named:
        result |= {"offload_activations": "1", "offload_modules": "+".join(named)}
    return result
