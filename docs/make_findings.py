"""Write `docs/findings.md` from the pages of all experiments and their reports: `python docs/make_findings.py`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"
HEAD = """<!-- Written by docs/make_findings.py. -->
# Findings

One line for each experiment: what was found, with a picture and a link to the page that says how. Each was made by one
command, which its page names. Money is in US dollars of 2026.
"""
GROUPS = {
    "Clusters and chips for training": (
        "train_gpt3_175b", "codesign_175b", "chip_175b", "folded_clos", "workload_mix", "chip_mix",
        "compute_optimal_machine", "training_goodput", "rl_split", "train_dlrm",
    ),
    "Serving": (
        "serve_llama31_405b", "serve_deepseek_v3", "disaggregation", "mixed_pools", "serve_goodput",
        "serve_by_the_hour", "fleet_under_bursts", "agents_and_prefixes", "self_host_or_api", "mixed_fleet",
        "serve_any_schedule", "serve_fabrics", "serve_llama31_405b_static",
        "codesign_405b_serving", "serve_dlrm",
    ),
    "Which model on which machine": (
        "lifetime_optimal", "shape_on_machine", "model_for_edge_budget", "quality_laws",
    ),
    "Memory and photonic appliances": (
        "memory_codesign", "serve_llama31_405b_pool", "serve_llama31_405b_edge", "serve_dlrm_pool", "pfa_offload",
        "pfa_energy", "pfa_inference_405b", "pfa_inference_1t", "pfa_port_check", "pfa_breakdown", "pfa_dlrm",
        "pfa_intensity",
    ),
    "Networks inside a node": (
        "intranode_codesign", "busy_node", "intranode_interference", "intranode_pcie", "fabrex_topologies",
        "fabrex_rings", "fabrex_cables", "fabrex_neox", "fabrex_405b",
    ),
    "Collectives and in-switch reduction": (
        "collective_winners", "scin_allreduce", "scin_inference", "scin_node", "scin_quantisation", "scin_waves",
    ),
    "Optical circuits": (
        "photonic_vs_nvl72", "photonic_rack", "photonic_link", "lumorph_rack", "lumorph_choice", "lumorph_allreduce",
        "lumorph_bert", "lumorph_slices",
    ),
    "The method itself": (
        "search_comparison", "compositions", "calculon_training", "calculon_search", "calculon", "megatron_training",
    ),
}  # fmt: skip
STANDARD = (  # pictures that many reports have, the most telling first
    "time_against_cost", "model_against_paper", "time_breakdown", "capex_and_power", "convergence", "elasticities",
    "memory_by_tier", "roofline",
)  # fmt: skip


def experiments() -> set[str]:
    """Names of all that has a page or a report."""
    pages = {path.parent.name for path in (ROOT / "experiments").glob("*/README.md")}
    return pages | {path.parent.name for path in (ROOT / "reports").glob("*/README.md")} - {"validation"}


def finding_of(name: str) -> tuple[str, str]:
    """The sentence of an experiment and the page that it stands on.

    Raises:
        ValueError: its page has no `**Finding.**`, nor its report a `**Best design.**`.
    """
    page = ROOT / "experiments" / name / "README.md"
    if page.is_file():
        found = re.search(r"^\*\*Finding\.\*\* (.*?)\n\n", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if not found:
            raise ValueError(f"{page}: no paragraph begins with **Finding.**")
        return " ".join(found[1].split()), f"../experiments/{name}/README.md"
    report = ROOT / "reports" / name / "README.md"
    found = re.search(r"^\*\*Best design\.\*\* (.*)$", report.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ValueError(f"{report}: no line begins with **Best design.**")
    numbers = [one for one in re.split(r", (?!\d)| and ", found[1]) if not one.endswith(" $0")]
    return f"{question_of(name)}: {', '.join(numbers[:3])}.", f"../reports/{name}/README.md"


def question_of(name: str) -> str:
    """What the configuration of an experiment says it asks, in short."""
    lines = (ROOT / "conf" / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = next(line for line in lines if line.startswith("# ") and "@package" not in line)
    return comment.removeprefix("# ").split(": ")[0].rstrip(".?")


def picture_of(name: str) -> str | None:
    """The picture that shows a finding best: one of its own, else a standard one; None where there is none."""
    beside = sorted((ROOT / "experiments" / name).glob("*.png"))
    reported = sorted((ROOT / "reports" / name).glob("*.png"))
    own = [path for path in reported if path.stem not in STANDARD]
    standard = sorted((path for path in reported if path.stem in STANDARD), key=lambda path: STANDARD.index(path.stem))
    best = [*beside, *own, *standard]
    return f"../{best[0].relative_to(ROOT).as_posix()}" if best else None


def page() -> str:
    """The page, as Markdown."""
    lines = [HEAD]
    for group, names in GROUPS.items():
        lines += [f"## {group}", "", "| | found |", "|---|---|"]
        for name in names:
            words, link = finding_of(name)
            picture = picture_of(name)
            shown = f'<img src="{picture}" width="160" alt="{name}" loading="lazy">' if picture else ""
            lines.append(f"| {shown} | {words} [{name}]({link}) |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
