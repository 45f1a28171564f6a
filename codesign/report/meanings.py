"""Meaning of each metric, in a line: for `codesign list metrics` and whoever writes a limit."""

from .labels import MEMORY_CLASSES, PARTS, TIERS, component

MEANINGS = {
    "time_s": "time of one training step, or of one batch of requests",
    "ttft_s": "time to first token: from a request's arrival to its first token, at the design's load",
    "tpot_s": "time per output token of a request, after the first",
    "e2e_s": "a whole request, from arrival to its last token",
    "tokens_per_s": "throughput of the cluster: trained tokens, or tokens that come out where requests are served",
    "tokens_per_s_per_user": "what one request sees: 1 / tpot_s",
    "tokens_per_s_per_device": "throughput over the number of accelerators; serving: of output tokens",
    "decode_tokens_per_s": "output tokens per second while decoding",
    "requests_per_s": "requests served per second in steady state",
    "concurrency": "requests in flight",
    "hybrid_step_share": "share of steps that carry prefill tokens as well as decodes",
    "stage_s": "forward and backward of a micro-batch on one of a pipeline's first stages",
    "later_stage_s": "the same on one of its last stages, of the second kind of accelerator, the head included",
    "prefill_utilisation": "share of the prefill token budget in use; below 1, or prompts queue without bound",
    "slot_utilisation": "mean share of an engine's batch slots (plan.micro_batch) in use",
    "queued_share": "share of requests that find all batch slots of an engine taken, and queue",
    "queue_wait_s": "mean queueing delay for a batch slot; part of ttft_s, or with a prefill pool of tpot_s",
    "prefix_hit_rate": "share of prompt tokens that prefix caches hold, in the room that the design leaves them",
    "prefix_hit_rate_hbm": "the part of prefix_hit_rate that the first memory answers",
    "prefix_hit_rate_pool": "the part of prefix_hit_rate that pooled memory answers",
    "prefix_hit_rate_host": "the part of prefix_hit_rate that host memory answers",
    "prefix_hit_rate_store": "the part of prefix_hit_rate that a store over the network answers",
    "prefix_room_tokens_hbm": "tokens that one replica's prefix cache has room for in the first memory",
    "prefix_room_tokens_pool": "tokens of prefixes that those who share a pool have room for in it",
    "prefix_room_tokens_host": "tokens that one replica's prefix cache has room for in host memory",
    "prefix_room_tokens_store": "tokens that a store of prefixes over the network has room for",
    "prefix_fetch_s": "time to bring what a mean prompt finds elsewhere than in the first memory",
    "transfer_utilisation": "utilisation of the link that carries KV caches between two pools",
    "decodes": "sequences decoded at once, over all engines",
    "prefill_pool_utilisation": "share of the time that the prefill pool computes",
    "decode_pool_utilisation": "share of the time that the decode pool computes",
    "slo_prefill_utilisation": "prefill load over what an engine sustains; up to 1 the queue is stable",
    "slo_slot_utilisation": "batch slots needed over those of an engine; up to 1 the queue is stable",
    "slo_ttft_ratio": "time to first token at the percentile of the SLO, over its limit; met up to 1",
    "slo_tpot_ratio": "time per output token at the percentile of the SLO, over its limit; met up to 1",
    "rollout_s": "rollouts of one step of RL post-training; asynchronous: until enough responses are complete",
    "training_s": "log-probabilities and updates of one step of RL post-training",
    "scoring_s": "log-probabilities of one step, of old policy, reference and reward model; part of training_s",
    "weight_sync_s": "new weights on their way to the rollout engines, once a step",
    "switch_s": "state swapped out and in between rollouts and training on shared devices, once a step",
    "rollout_utilisation": "share of the time that rollout devices generate",
    "trainer_utilisation": "share of the time that the trainer's devices score and update",
    "responses_per_s": "responses generated and trained on per second",
    "mean_response_tokens": "mean length of a response, those at the maximum cut",
    "rollout_memory_bytes": "memory of a rollout device at its fullest moment",
    "trainer_memory_bytes": "memory of a trainer's device at its peak",
    "samples_per_s": "samples per second of a recommendation model",
    "lookups_per_s": "rows of embedding tables read per second",
    "embedding_s": "time of one batch in its embedding tables",
    "hit_ratio": "share of rows that the first memory tier answers",
    "dropped_token_ratio": "share of the token copies that experts at their capacity do not take",
    "padded_token_ratio": "share of the experts' work that is padding up to their capacity",
    "mfu": "model FLOP/s over the accelerators' dense peak of the number format",
    "arithmetic_intensity": "FLOPs of all kernels over the bytes that they move to and from the accelerator's memory",
    "collective_s": "mean time of the longest single collective or send, waits for others' bursts with it",
    "collective_p99_s": "the same, of the slowest of a hundred",
    "communication_share": "share of the time of a step or batch that communication takes, as far as nothing hides it",
    "energy_j": "energy of one step or batch, facility's overhead included",
    "joules_per_token": "energy per token, the facility's overhead included",
    "power_w": "mean power, the facility's overhead included",
    "provisioned_power_w": "power that must be there: every part at its most, the facility's overhead included",
    "capex_usd": "price of accelerators, memory, hosts, networks, and of the facility per provisioned watt",
    "usd_per_million_tokens": "capex written off over its life in use, and energy; serving: per million output tokens",
    "usd_per_million_input_tokens": "the same, the share that prompts take, per million input tokens",
    "usd_per_million_output_tokens": "the same, the share that answers take, per million output tokens",
    "log_perplexity_penalty": "what rounded sums add to the logarithm of perplexity",
    "overload_probability": "probability, over the model's errors, that the engines are overloaded",
    "acceptance": "share of the accelerators asked for that tenants of a shared rack get",
    "goodput": "productive share of the time: without failures, repeated work and checkpoints",
    "availability": "share of the time that replicas serve, failures taken off",
    "failures_per_day": "failures of the whole cluster that stop the job, per day",
    "checkpoint_s": "time to write one checkpoint",
    "checkpoint_interval_s": "work between two checkpoints, as long as is best",
    "time_to_train_s": "duration of the whole run, failures and checkpoints included",
    "energy_to_train_j": "energy of the whole run, failures and the facility's overhead included",
    "usd_to_train": "cost of the whole run: capex written off over its duration, and energy",
    "run_tokens": "tokens trained on, in all",
    "run_flops": "model FLOPs of the whole run",
    "parameters": "parameters of the model",
    "active_parameters": "parameters that one token uses",
    "loss": "loss that the model reaches, by a scaling law, in nats per token",
    "loss_reducible": "part of the loss that a larger model or more data would take off",
    "loss_beyond": "factor by which model or data lie outside the range that the scaling law was fitted on",
    "carbon_kg": "carbon of one step or batch: operation, and manufacture over its life in use",
    "carbon_made_kg": "carbon of making the whole cluster",
    "carbon_g_per_million_tokens": "carbon per million tokens, operation and manufacture",
    "carbon_to_train_kg": "carbon of the whole run",
    "usage": "used share of a memory or of what bounds a network; feasible up to 1",
    "violations": "how far a rule of the plan is broken; 0 where it is kept",
    "memory_bytes": "bytes per device",
    "breakdown_s": "part of the time of a step or batch, as far as nothing hides it",
    "count": "parts of a network that the devices need",
    "capex": "part of the price",
    "power": "part of the provisioned power, before the facility",
}


def meaning(name: str) -> str:
    """Meaning of a metric or of a part of a metric group; empty for an unknown one."""
    if name in MEANINGS:
        return MEANINGS[name]
    group, _, part = name.partition(".")
    if part and group in MEANINGS:
        return f"{_part(group, part)}: {MEANINGS[group]}"
    base = name.removesuffix("_low").removesuffix("_high")
    return f"end of the interval of {base}" if base != name and base in MEANINGS else ""


def _part(group: str, part: str) -> str:
    """A part of a group in words: `tensor-parallel comm.` of the time, `KV cache in HBM` of the memory."""
    first, _, rest = part.partition("/" if group == "memory_bytes" else ".")
    if group == "memory_bytes":
        kept = MEMORY_CLASSES[rest][0] if rest in MEMORY_CLASSES else rest.replace("_", " ")
        return f"{kept} in {TIERS.get(first, first)}"
    if group == "usage":
        return TIERS.get(first, first.replace("_", " ")) + (f", {rest.replace('_', ' ')}" if rest else "")
    if group == "breakdown_s" and part in PARTS:
        return PARTS[part][0]
    return component(part) if group in ("capex", "power") else part.replace("_", " ").replace(".", ": ")
