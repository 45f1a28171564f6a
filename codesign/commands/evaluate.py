"""`codesign evaluate`: the price of one design, with its full breakdown."""

import sys
from collections.abc import Mapping, Sequence

from ..config import check_memory, check_plan
from ..config.checks import check_hopeful
from ..config.consistency import check_boxes
from ..config.legal_start import legal_start
from ..config.load_checks import check_load
from ..config.outcome_checks import check_outcome
from ..config.plausibility import unusual
from ..config.study import documented_scenario
from ..config.weight_formats import format_lines
from ..core.interval_text import remarks_text
from ..core.json_io import dumps
from ..model.metrics.prefix_room import has_prefix_cache
from ..search.results import busy_links, numbers_in, ops, priced
from ..uncertainty import uncertain, with_room
from .evaluation_tables import model_text, room_text, sections, show_evaluation
from .memory_fit import chance_text
from .prefix_worth import prefix_text, prefix_worth
from .setup import prepare_jax
from .sized import sized
from .terminal import console, job_text
from .unusual import say_default, say_devices, say_trace, warn

MEMORY_SHARES = ("usage.hbm", "usage.hbm.engine")
NEAR = 0.9  # used share of a memory from which it is said how likely it fits


def evaluate_design(
    overrides: list[str], *, as_json: bool = False, top: int = 10, remarks: Sequence[str] = (), explain: bool = False
) -> None:
    """Price the scenario of the configuration and print it; nothing is printed of one that is refused.

    Args:
        overrides: of the configuration.
        as_json: numbers alone, as one object.
        top: longest operations that are shown.
        remarks: lines of how the overrides came about, for stderr.
        explain: print what columns and rows mean.

    Raises:
        ConfigError: bad configuration, a plan that breaks a rule, or a design that cannot run.
    """
    prepare_jax()
    scenario, provenance = documented_scenario(*overrides)
    counted, line = sized(scenario, overrides)
    if counted:
        overrides = [*overrides, *counted]
        scenario, provenance = documented_scenario(*overrides)
    check_boxes(scenario)
    check_hopeful(scenario)
    scenario, instead = legal_start(scenario, overrides)
    check_plan(scenario)
    check_memory(scenario)
    roomy = with_room(scenario)  # one trace for numbers and draws
    account = priced(roomy)
    numbers, drawn = numbers_in(account), uncertain(roomy)
    check_load(scenario, numbers)
    check_outcome(scenario, numbers)
    for text in (*remarks, *(f"codesign: {one}" for one in (line, instead) if one)):
        print(text, file=sys.stderr)
    say_default(overrides)
    say_devices(overrides)
    warn(unusual(scenario, provenance=provenance))
    say_trace(provenance)
    for line in format_lines(scenario):
        print(f"codesign: {line}", file=sys.stderr)
    worth = prefix_worth(scenario, numbers) if has_prefix_cache(scenario) else {}
    if as_json:
        told = {f"prefix_worth_usd_per_tb_{tier}": one.usd for tier, one in worth.items()}
        print(dumps(numbers | told | drawn.columns(), indent=2))
        return
    capacity = {
        "hbm": float(scenario.cluster.accelerator.hbm.usable_bytes()),
        "ddr": float(scenario.cluster.host.memory.usable_bytes()),
    }
    table = ops(scenario, account)
    words = scenario.workload.words
    tables = sections(numbers, drawn.intervals, table, capacity, top, words.item)
    show_evaluation(console(), job_text(scenario), tables, words, explain=explain)
    if told := model_text(scenario):
        console().print(told, highlight=False)
    for line in prefix_text(scenario, worth) if worth else ():
        console().print(line, highlight=False)
    if remarks and (told := room_text(scenario)):  # of a launch command: engines print it when they start
        console().print(told, highlight=False)
    if max(numbers.get(name, 0.0) for name in MEMORY_SHARES) > NEAR and (told := chance_text(scenario)):
        console().print(told, highlight=False)
    if told := remarks_text(numbers | drawn.columns()):
        console().print(told, highlight=False)
    for group, text in busy_links(scenario, table)[1].items():
        console().print(f"which cable limits {group}: {text}", highlight=False)
    for remark in (*scenario.cluster.accelerator.hbm.remarks(), *rounding_remarks(numbers)):
        console().print(f"note: {remark}")


def rounding_remarks(numbers: Mapping[str, float]) -> tuple[str, ...]:
    """Algorithms that round were chosen for a job none of whose sums they round."""
    if numbers.get("log_perplexity_penalty") != 0:
        return ()
    return (
        "an algorithm that rounds what it sums was chosen, but it rounds no sum of this job: sums of training, of a"
        " group of one and of numbers that have no more bits are exact, and a sum that leaves the node is formed"
        " outside",
    )
