"""Short names of engineers for the numbers and choices of a design, beside the paths of the configuration.

    tp=8 gpu=h200 isl=1000      ->  plan.tp=8 accelerator=h200 workload.input_tokens=1000
    tp=[4,8] devices=[8,16]     ->  space.plan.tp=[4,8] space.plan.device_count=[8,16]
    region=europe-west4         ->  ownership=cloud cluster.facility.ownership.region=europe-west4

Columns of measured runs are read by the same table.
"""

from collections.abc import Iterable

__all__ = ["CHOICES", "NUMBERS", "OPEN_REQUESTS", "WORDS", "as_typed", "full_name", "full_names", "option_name"]

CHOICES = {"gpu": "accelerator", "device": "accelerator", "backend": "framework", "engine": "framework"}
"""Name -> group of options."""
NUMBERS = {
    "tp": "plan.tp", "tensor_parallel": "plan.tp", "pp": "plan.pp", "pipeline_parallel": "plan.pp", "cp": "plan.cp",
    "ep": "plan.ep", "etp": "plan.etp", "capacity_factor": "plan.capacity_factor", "schedule": "plan.schedule",
    "zero": "plan.zero", "attention_dp": "plan.attention_dp", "virtual_stages": "plan.virtual_stages",
    "micro_batch": "plan.micro_batch", "micro_batch_size": "plan.micro_batch", "mbs": "plan.micro_batch",
    "concurrency": "plan.micro_batch", "max_concurrency": "plan.micro_batch", "max_num_seqs": "plan.micro_batch",
    "max_num_batched_tokens": "plan.token_budget", "token_budget": "plan.token_budget",
    "num_gpus": "cluster.device_count", "gpus": "cluster.device_count", "devices": "cluster.device_count",
    "device_count": "cluster.device_count", "num_accelerators": "cluster.device_count",
    "isl": "workload.input_tokens", "input_tokens": "workload.input_tokens", "input_len": "workload.input_tokens",
    "osl": "workload.output_tokens", "output_tokens": "workload.output_tokens", "output_len": "workload.output_tokens",
    "request_rate": "workload.arrivals_per_s", "request_rate_per_s": "workload.arrivals_per_s",
    "qps": "workload.arrivals_per_s",
    "global_batch": "workload.global_batch", "global_batch_size": "workload.global_batch",
    "gbs": "workload.global_batch",
    "sequence": "workload.sequence", "seq_len": "workload.sequence", "sequence_length": "workload.sequence",
}  # fmt: skip
"""Name -> path of a number."""
RATE = {"rate": "workload.arrivals_per_s"}
"""Name of a number of an override alone: a column `rate` of a table does not say what it counts."""
WORDS = {"region": "cluster.facility.ownership.region"}
"""Name -> path of a word."""
COUNT = "cluster.device_count"
RENTED = "ownership=cloud"


def full_name(text: str) -> str:
    """An override by its path or group; any other text as it is."""
    name, equals, value = text.partition("=")
    by_name = {**CHOICES, **NUMBERS, **RATE, **WORDS}
    if not equals or name not in by_name:
        return text
    path = by_name[name]
    if value.startswith("[") and path.startswith(("plan.", COUNT)):  # several: what a search chooses from
        path = f"space.plan.{path.rpartition('.')[2]}"
    return f"{path}={value}"


CLIENTS = "workload=disaggregated_clients"
OPEN_REQUESTS = ("concurrency=", "max_concurrency=")
"""Beginnings of overrides that say how many requests clients hold open, whatever an engine has room for."""


def _of_clients(text: str) -> str:
    is_said = isinstance(text, str) and text.startswith(OPEN_REQUESTS)
    return f"workload.concurrency={text.partition('=')[2]}" if is_said else text


def _of_a_file(text: str) -> list[str]:
    """`model=DIR/config.json` as the option that reads such files, and its path; any other text as it is."""
    name, _, value = text.partition("=") if isinstance(text, str) else ("", "", "")
    if name == "model" and value.endswith(".json"):
        return [f"{name}=hf_config", f"model.path={value}"]
    return [text]


def full_names(overrides: Iterable[str]) -> list[str]:
    """Overrides by their paths and groups.

    A region is one of a cloud, which is chosen where no ownership is; `concurrency` is how many requests clients hold
    open, of an engine that takes all of them its places.
    """
    given = list(overrides)
    texts = [text for text in given if isinstance(text, str)]
    if any(text.startswith(CLIENTS) for text in texts):  # whose clients are apart from the places of an engine
        given = [_of_clients(text) for text in given]
    rented = any(text.startswith("region=") for text in texts)
    owned = any(text.lstrip("+~").startswith("ownership=") for text in texts)
    named = [full_name(text) if isinstance(text, str) else text for one in given for text in _of_a_file(one)]
    return [RENTED, *named] if rented and not owned else named


def as_typed(message: str, words: Iterable[str]) -> str:
    """A message that begins with the path of a number, by the short name under which the number was typed."""
    path = message.partition(" ")[0]
    names = [word.partition("=")[0] for word in words if "=" in word]
    name = next((name for name in names if {**NUMBERS, **RATE}.get(name) == path), "")
    return f"{name}{message.removeprefix(path)} ({name} is {path})" if name else message


def option_name(text: str) -> str:
    """A name as options are written: `europe-west4` is `europe_west4`."""
    return text.strip().lower().replace("-", "_") if isinstance(text, str) else text
