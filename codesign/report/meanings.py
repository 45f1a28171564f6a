"""What each metric is, in a line: for `codesign list metrics` and whoever writes a limit."""

MEANINGS = {
    "time_s": "one training step, or one batch of requests",
    "ttft_s": "time to first token: from a request's arrival to its first token, at the load of the design",
    "tpot_s": "time per output token of a request, after the first",
    "e2e_s": "a whole request, from arrival to its last token",
    "tokens_per_s": "throughput of the cluster: trained tokens, or tokens that come out where requests are served",
    "tokens_per_s_per_user": "what one request sees: 1 / tpot_s",
    "tokens_per_s_per_device": "output tokens per second and accelerator",
    "decode_tokens_per_s": "output tokens per second while decoding",
    "requests_per_s": "requests that the cluster serves in the long run",
    "concurrency": "requests under way at once",
    "mixed_ratio": "share of steps that carry prompts beside decodes",
    "prompt_load": "share of the room for prompts that is taken; below 1 or they pile up",
    "batch_used": "share of an engine's places (plan.micro_batch) that sequences under way take on average",
    "place_wait_ratio": "share of the requests that find all places of an engine (plan.micro_batch) taken, and wait",
    "place_wait_s": "wait for a place, mean of all requests: in ttft_s, or of two pools in tpot_s",
    "link_busy": "share of the time that the link between two pools is in use",
    "samples_per_s": "samples per second of a recommendation model",
    "lookups_per_s": "rows of embedding tables read per second",
    "embedding_s": "time of one batch in its embedding tables",
    "hit_ratio": "share of rows that the first memory tier answers",
    "mfu": "model FLOP/s over the accelerators' dense peak of the number format",
    "energy_j": "energy of one step or batch, facility's overhead included",
    "joules_per_token": "energy per token, the facility's overhead included",
    "power_w": "mean power, the facility's overhead included",
    "provisioned_power_w": "power that must be there: every part at its most, the facility's overhead included",
    "capex_usd": "price of accelerators, memory, hosts, networks, and of the facility per provisioned watt",
    "usd_per_million_tokens": "capex written off over its life in use, and energy; serving: per million output tokens",
    "usd_per_million_input_tokens": "the same, the share that prompts take, per million input tokens",
    "usd_per_million_output_tokens": "the same, the share that answers take, per million output tokens",
    "log_perplexity_penalty": "what rounded sums add to the logarithm of perplexity",
    "unsustained_ratio": "share of draws of the model's errors in which engines do not sustain the load (no end)",
    "acceptance": "share of the accelerators asked for that tenants of a shared rack get",
    "usage": "used share of a memory or of what bounds a network; feasible up to 1",
    "violations": "how far a rule of the plan is broken; 0 where it is kept",
    "memory_bytes": "bytes a device by tier and class",
    "breakdown_s": "part of the time of a step or batch, as far as nothing hides it",
    "count": "parts of a network that the devices need",
    "capex": "part of the price",
    "power": "part of the provisioned power, before the facility",
}


def meaning(name: str) -> str:
    """Of a metric, or of the group that it is a part of; empty where nothing is known of it."""
    if name in MEANINGS:
        return MEANINGS[name]
    group, _, part = name.partition(".")
    if part and group in MEANINGS:
        return f"{part.replace('_', ' ').replace('/', ': ')}: {MEANINGS[group]}"
    base = name.removesuffix("_low").removesuffix("_high")
    return f"end of the interval of {base}" if base != name and base in MEANINGS else ""
