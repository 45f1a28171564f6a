"""`codesign evaluate`: the price of one design, with its full breakdown."""

from ..config import check_memory, check_plan
from ..config.checks import check_hopeful, shortage
from ..config.load_checks import check_load
from ..config.plausibility import unusual
from ..config.study import documented_scenario
from ..results import busy_links, numbers_of, ops
from ..strict_json import dumps
from ..uncertainty import as_columns, intervals, with_room
from ..units import GB
from .evaluation_tables import show_evaluation
from .legal_start import legal_start
from .setup import prepare_jax
from .terminal import console, job_text
from .unusual import say_default, say_devices, warn


def evaluate_design(overrides: list[str], *, as_json: bool = False, top: int = 10) -> None:
    """Price the scenario of the configuration and print it.

    A design that does not fit is shown first and refused afterwards: it is worth seeing.

    Raises:
        ConfigError: bad configuration, a plan that breaks a rule, or memory that does not suffice.
    """
    prepare_jax()
    scenario, provenance = documented_scenario(*overrides)
    check_hopeful(scenario)
    scenario = legal_start(scenario, overrides)
    check_plan(scenario)
    say_default(overrides)
    say_devices(overrides)
    warn(unusual(scenario, provenance=provenance))
    roomy = with_room(scenario)  # one trace for numbers and draws
    numbers, uncertain = numbers_of(roomy), intervals(roomy)
    if not shortage(scenario):
        check_load(scenario, numbers)
    if as_json:
        print(dumps(numbers | as_columns(uncertain), indent=2))
    else:
        capacity = {
            "hbm": float(scenario.cluster.accelerator.hbm.usable_bytes()),
            "ddr": float(scenario.cluster.host.memory.usable_bytes()),
        }
        table = ops(scenario)
        missing = ", ".join(
            f"{tier} lacks {lack / GB:.1f} GB of {(lack + capacity[tier]) / GB:.1f} GB per device"
            for tier, lack in shortage(scenario).items()
        )
        title = f"{job_text(scenario)}{f'; does not fit: {missing}' if missing else ''}"
        item = scenario.workload.words.item
        show_evaluation(console(), title, numbers, uncertain, table, capacity, top, item)
        for group, text in busy_links(scenario, table)[1].items():
            console().print(f"which cable limits {group}: {text}", highlight=False)
        for remark in scenario.cluster.accelerator.hbm.remarks():
            console().print(f"note: {remark}")
    check_memory(scenario)
