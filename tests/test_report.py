import base64
import dataclasses
import html.parser
import itertools
import json
import re
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from example_run import CONFIG, SHARES, example_elasticities, write_run
from matplotlib.backends.backend_agg import FigureCanvasAgg

from codesign.config import scenario_from_config
from codesign.config.construct import targets
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.core.units import YEAR_S
from codesign.report import (
    build_report,
    compare_runs,
    comparison_pages,
    proof,
    read_run,
    sections,
    series,
    text_tables,
    wording,
    write_experiment_report,
)
from codesign.report.build import SECTIONS, _is_shown
from codesign.report.drawing import canvas, render, style
from codesign.report.figures import digits_apart
from codesign.report.labels import DASH, axis_prefix, number, unit_of
from codesign.report.run_folder import MissingPart
from codesign.search.exhaustive.grid import CHECKPOINT
from codesign.search.results import elasticities, numbers_of


@pytest.fixture(scope="module", params=[False, True], ids=["training", "serving"])
def built(request, tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("runs") / "run", serving=request.param)
    return build_report(folder).parent


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run")


class Page(html.parser.HTMLParser):
    """Headings, text, sources of pictures, and whether every element that was opened is closed."""

    VOID = frozenset({"meta", "br", "img", "wbr", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.sources, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.sources.append(dict(attrs)["src"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)
        if not {"style", "script"} & {*self.open}:
            self.words.append(data)


def page_of(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_page_has_every_section_and_stands_alone(built):
    page = page_of(built)
    wanted = [
        "Proof of the model",
        "Error of the model",
        "Budgets",
        "Best designs",
        "Where the time goes",
        "Time against cost",
        "Memory",
        "Price and power",
    ]
    wanted += ["What the result hangs on", "Roofline", "Operations", "Constants used", "How to repeat it"]
    assert [heading for heading in page.headings if heading != "KV cache"] == wanted
    assert page.open == []
    text = re.sub(r"<script.*?</script>", "", (built / "report.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert "http" not in text
    assert "Left out" not in text
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []


@pytest.mark.slow
def test_pictures_in_the_page_are_the_files(built):
    files = sorted((built / "figures").glob("*.png"))
    assert len(files) == 6
    embedded = {base64.b64decode(source.split(",")[1]) for source in page_of(built).sources}
    for file in files:
        data = file.read_bytes()
        embedded.discard(data)
        assert data.startswith(b"\x89PNG")
        assert 10_000 < len(data) < 150_000, file.name
    assert not embedded  # what has bars or a chart in the page is a file alone


def test_ticks_of_an_axis_are_told_apart():
    assert digits_apart(np.array([1.0, 40.0])) == 3
    assert digits_apart(np.array([3.781, 3.7816])) == 6
    assert digits_apart(np.array([2.0, np.inf, np.nan])) == 3
    assert digits_apart(np.array([])) == 3


@pytest.mark.slow
def test_same_run_gives_same_bytes(built):
    files = ["report.html", *(f"figures/{path.name}" for path in (built / "figures").iterdir())]
    first = {name: (built / name).read_bytes() for name in files}
    build_report(built)
    assert {name: (built / name).read_bytes() for name in files} == first


def test_headline_says_what_was_asked_found_and_proved(folder):
    run = read_run(folder)
    best = run.best
    assert wording.job(run) == "gpt3_175b training on 1,024 \u00d7 h100_sxm"
    assert wording.objective_text(run).startswith("the lowest cost per million tokens, with capex at most $45.0")
    assert f"${best['usd_per_million_tokens']:.3f}" in wording.best_design(run)
    assert f"MFU {100 * best['mfu']:.1f}" in wording.best_design(run)
    assert wording.binds(best) == ("HBM 98.4%", "backward 47% of time", "tensor-parallel comm. 13% of time")
    assert "no certificate" in wording.certainty(run)
    assert "119,872 points" in wording.certainty(run)
    assert "scale-up bandwidth 900\u202fGB/s" in wording.design(run)


def test_certainty_promises_nothing_that_the_search_did_not_claim(folder):
    (folder / "summary.json").unlink()
    assert wording.certainty(read_run(folder)) == (
        "Heuristic solution by an exhaustive grid and gradient descent, no certificate."
    )


@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_was_cut_off_says_how_to_go_on(tmp_path, saved):
    (tmp_path / "config.yaml").write_text("{}\n")
    (tmp_path / "overrides.txt").write_text("search=grid\nspace.plan.tp=[1, 2]\n")
    if saved:
        (tmp_path / CHECKPOINT).write_bytes(b"")
    with pytest.raises(ConfigError) as error:
        read_run(tmp_path)
    again = "codesign optimize search=grid 'space.plan.tp=[1, 2]'"
    assert again + (f" search.resume={tmp_path}`" if saved else "`") in str(error.value)


def test_degrees_leave_out_ones_and_show_interleaving():
    design = {"var.tp": 8.0, "var.pp": 4.0, "var.virtual_stages": 3.0, "var.dp": 1.0, "var.recompute": 1.0}
    assert wording.degrees(design) == "TP\u202f8 · PP\u202f4\u00d73"
    assert wording.choices(design) == "selective recompute"
    assert wording.degrees({"var.tp": 1.0}) == "TP\u202f1"


@pytest.mark.slow
def test_time_bars_sum_to_the_time(built):
    run = read_run(built)
    table = series.time_breakdown(run)
    np.testing.assert_allclose(table.sum(axis="columns"), run.designs["time_s"].head(len(table)))
    assert ("dp" in table) is not run.is_serving  # parts that no design has take no place


def test_time_that_no_part_explains_is_shown(folder):
    frame = pd.read_parquet(folder / "designs.parquet").drop(columns="breakdown_s.tp")
    frame.to_parquet(folder / "designs.parquet")
    run = read_run(folder)
    table = series.time_breakdown(run)
    np.testing.assert_allclose(table["other"], SHARES["tp"] * run.designs["time_s"].head(len(table)))


def test_memory_capacity_is_what_usage_implies(folder):
    tiers = series.memory_by_tier(read_run(folder))
    np.testing.assert_allclose(tiers["hbm"][1], 76e9)
    used = tiers["ddr"][1].dropna()
    np.testing.assert_allclose(used, 250e9)


def test_front_without_pareto_file_is_the_same(folder):
    given = series.time_against_cost(read_run(folder))
    (folder / "pareto.parquet").unlink()
    result = series.time_against_cost(read_run(folder))
    assert given["front"].sum() >= 2
    pd.testing.assert_frame_equal(result, given)
    front = result[result["front"]].sort_values("time_s")
    assert front["usd_per_million_tokens"].is_monotonic_decreasing


def test_money_that_no_part_explains_is_the_facilitys(folder):
    run = read_run(folder)
    power = series.parts(run, "power.")
    assert power.sum() == pytest.approx(run.best["provisioned_power_w"])
    assert power["facility"] == pytest.approx(run.best["provisioned_power_w"] * (1 - 1 / 1.2))
    assert "facility" not in series.parts(run, "capex.")


def test_ops_count_as_often_as_their_phase_runs(folder):
    ops = pd.read_parquet(folder / "ops.parquet")
    ops["repeats"] = np.where(ops["phase"] == "backward", 10.0, 1.0)
    ops.to_parquet(folder / "ops.parquet")
    shares = series.operations(read_run(folder)).set_index(["name", "phase"])["share"]
    assert shares.sum() == pytest.approx(1)
    assert shares["qkv", "backward"] == pytest.approx(20 * shares["qkv", "forward"])


def test_close_marks_of_the_roofline_share_a_label(folder):
    labels = series.roofline_labels(series.roofline(read_run(folder)))
    text = next(text for text, _, _ in labels if "mlp_up" in text)
    assert "mlp_down" in text
    assert not any("softmax" in text and "mlp_up" in text for text, _, _ in labels)


def test_constants_least_sure_first(folder):
    moving, idle = text_tables.constants(read_run(folder))
    assert [row[0] for row in moving.rows[:3]] == [
        "workload.kernel_slowdown", "facility.amortisation_s", "accelerator.price_usd",
    ]  # fmt: skip
    assert moving.rows[0][2] == "no provenance"
    assert [row[0] for row in idle.rows] == ["accelerator.kernels.attention.bf16.t0_s"]


def test_the_worth_of_a_unit_is_in_dollars_a_month(folder):
    """450 GB/s with an elasticity of -0.09 of $M a month: 0.09 M / 450 a GB/s."""
    rows = {row[0]: row[-1] for row in text_tables.constants(read_run(folder))[0].rows}
    assert text_tables.worth(
        {"path": "cluster.x.bandwidth_bytes_per_s", "value": 450e9, "usd_per_million_tokens": -0.09}, 1e6
    ) == (pytest.approx(0.09e6 / 450), "GB/s")
    assert rows["network.scale_up.fabric.bandwidth_bytes_per_s"].endswith(" per GB/s")
    assert rows["network.scale_up.fabric.latency_s"].startswith("-")
    assert rows["network.scale_up.fabric.latency_s"].endswith(" per us")
    assert rows["facility.amortisation_s"] == rows["accelerator.price_usd"] == DASH


@pytest.mark.slow
def test_the_worth_of_a_unit_is_what_evaluation_saves():
    """Of a GB/s of memory and of a microsecond, against the design priced with it."""
    scenario = scenario_from_config("model=llama31_8b", "workload=static_batch", "cluster.device_count=8", "plan.tp=8")
    table = elasticities(scenario, {}).set_index("path", drop=False)
    month = YEAR_S / 12

    def cost(**changed: float) -> float:
        values = {path.replace("__", "."): value for path, value in changed.items()}
        told = numbers_of(replace(scenario, values))
        return told["usd_per_million_tokens"] * 1e-6 * tokens * month

    tokens = numbers_of(scenario)["tokens_per_s"]
    for path, unit in (("cluster.accelerator.hbm.bandwidth_bytes_per_s", 1e9),
                       ("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", 1e9)):  # fmt: skip
        row = table.loc[path].to_dict()
        ahead, behind = (cost(**{path.replace(".", "__"): row["value"] + sign * unit}) for sign in (1, -1))
        assert text_tables.worth(row, cost())[0] == pytest.approx((behind - ahead) / 2, rel=1e-3)


def test_what_the_study_chose_has_no_other_source(folder):
    (folder / "overrides.txt").write_text("cluster.accelerator.price_usd=30000\n", encoding="utf-8")
    run = read_run(folder)
    standing = dict(zip(run.elasticities["path"], series.kinds(run), strict=True))
    assert standing["cluster.network.scale_up.fabric.bandwidth_bytes_per_s"] == "variable"
    assert standing["cluster.accelerator.price_usd"] == "override"
    assert standing["cluster.facility.pue"] == "assumed"


def test_elasticities_are_those_of_the_objective(folder):
    table = series.elasticities(read_run(folder))
    assert table["path"][0] == "cluster.facility.amortisation_s"
    config = CONFIG | {"objective": {"minimise": "time_s"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert series.elasticities(read_run(folder))["path"][0] == "workload.kernel_slowdown"


def test_serving_shows_latencies_and_room_for_the_cache(tmp_path):
    run = read_run(write_run(tmp_path / "run", serving=True))
    head = text_tables.best_designs(run).head
    assert {"TTFT", "TPOT"} <= set(head)
    assert "Step time" not in head
    cache, others = (run.best[f"memory_bytes.hbm/{name}"] for name in ("kv_cache", "weights"))
    room = 76e9 - others - run.best["memory_bytes.hbm/working"]
    assert f"the cache of {int(room / (cache / 32))}." in text_tables.cache_room(run)


def test_tokens_per_accelerator_are_those_of_each_design(tmp_path):
    run = read_run(write_run(tmp_path / "run", serving=True))
    run.designs["var.device_count"] = [16.0 * 2**rank for rank in range(len(run.designs))]
    shown = text_tables.best_designs(run)
    column = shown.head.index("Tokens/s per accelerator")
    for row, (_, design) in zip(shown.rows, run.designs.iterrows(), strict=False):
        assert row[column] == number(design["tokens_per_s"] / design["var.device_count"], "count", zeros=True)


def certified_as(folder, **certificate):
    """The run with a certificate; its best design is the first of the frame."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"certificate": {"convex": True} | certificate}))
    return read_run(folder)


def mixed_run(folder):
    entries = [
        {"workload": name, "weight": 1.0, "goal": "usd_per_million_tokens", "value": value, "own_best": value / cost,
         "costs": cost - 1, "used": {"time_s": 0.9, "usage.hbm": 0.2},
         "design": {"tp": tp, "pp": 1.0, "micro_batch": 2.0, "scale_up_bandwidth": 400e9},
         "own_design": {"tp": tp, "pp": 1.0, "micro_batch": 2.0, "scale_up_bandwidth": own}}
        for name, value, cost, tp, own in (("train", 0.5, 1.02, 8.0, 800e9), ("serve", 4.0, 1.25, 4.0, 100e9))
    ]  # fmt: skip
    return certified_as(
        folder, goal="log_sum of 2 goals", sense="minimise", best=1.4142, bound=1.4, gap=0.0101,
        bound_of_own_hardware=1.25, workloads=entries, history=[],
    )  # fmt: skip


def test_mix_shows_every_workload_and_what_they_share(folder):
    run = mixed_run(folder)
    assert {"Workloads", "Shared hardware"} <= {title for title, _ in SECTIONS if _is_shown(run, title)}
    assert wording.objective_text(run) == "one hardware for train and serve"
    assert "Geometric mean of cost per million tokens: $1.414; no hardware and no plans reach less than $1.400" in (
        sections.mix_text(run).replace("\u202f", " ")
    )
    assert "$1.250 at the very least" in sections.mix_text(run)
    rows = sections.plans(run).rows
    assert [row[0][0] for row in rows] == ["train", "serve"]
    assert [row[3] for row in rows] == ["+2.0 %", "+25.0 %"]
    assert rows[1][4][0] == "TP\u202f4"
    assert rows[0][5] == ("Step time 90.0\u202f%",)
    assert sections.hardware(run).rows == [("scale-up bandwidth", "400\u202fGB/s", "800\u202fGB/s", "100\u202fGB/s")]
    assert proof.text(run).startswith("No design of this space is better than $1.40")


def test_a_mix_that_was_stopped_before_any_bound_promises_nothing(folder):
    run = mixed_run(folder)
    run.summary["certificate"] |= {"bound": None, "gap": None, "reason": "interrupted"}
    assert proof.text(run) == "Best found, nothing proven yet: interrupted."
    assert "No proof: interrupted." in sections.mix_text(run)


def test_the_legend_of_a_mix_lies_over_nothing(folder):
    figure = sections.sharing(sections.workloads(mixed_run(folder)))
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert all(legend.y1 <= axes.get_window_extent().y0 for axes in figure.axes)


def test_the_value_of_an_inverse_search_has_its_unit(folder):
    run = certified_as(folder, goal="scale_up_bandwidth", sense="minimise", best=662e9, bound=661e9, gap=1.5e-3)
    assert "better than 661\u202fGB/s; the best one found has 662\u202fGB/s" in proof.text(run)
    near = certified_as(folder, goal="scale_up_bandwidth", sense="minimise", best=661.8e9, bound=661.5e9, gap=4e-4)
    assert "better than 661.5\u202fGB/s; the best one found has 661.8\u202fGB/s" in proof.text(near)
    assert wording.objective_text(run).startswith("the least scale-up bandwidth, with capex at most")
    assert wording.best_design(run).startswith(
        f"scale-up bandwidth {number(run.best['var.scale_up_bandwidth'], 'B/s')}, "
    )


def test_recommendation_models_count_samples(folder):
    assert "Tokens/s" in text_tables.best_designs(read_run(folder)).head
    frame = pd.read_parquet(folder / "designs.parquet")
    frame["breakdown_s.lookup"] = 0.1 * frame["time_s"]
    frame.to_parquet(folder / "designs.parquet")
    run = read_run(folder)
    assert {"Samples/s", "J/sample", "$/M samples"} <= set(text_tables.best_designs(run).head)
    assert "cost per million samples" in wording.best_design(run)
    assert [label for label, _, _ in wording.key_figures(run) if "oken" in label] == []


@pytest.mark.slow
def test_limits_that_are_broken_are_marked(folder):
    frame = pd.read_parquet(folder / "designs.parquet")
    frame["feasible"], frame["capex_usd"] = False, 90e6
    frame["limit.capex_usd"] = 2.0
    frame.to_parquet(folder / "designs.parquet")
    build_report(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert "No design keeps all limits" in text
    assert '<tr class="over"><td class="text">Capex' in text
    assert "infeasible" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "heading"),
    [("ops.parquet", "Roofline"), ("elasticities.parquet", "Constants used"), ("versions.json", "How to repeat it")],
)
def test_missing_file_leaves_a_note(folder, file, heading):
    (folder / file).unlink()
    build_report(folder)
    page = page_of(folder)
    assert heading in page.headings
    assert any(f"Left out: {file} is absent" in words for words in page.words)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["breakdown_s.", "memory_bytes.", "capex.", "usd_per_million_tokens"])
def test_missing_columns_leave_a_note(folder, prefix):
    frame = pd.read_parquet(folder / "designs.parquet")
    frame[[name for name in frame if not name.startswith(prefix)]].to_parquet(folder / "designs.parquet")
    build_report(folder)
    assert any(f"Left out: designs.parquet has no column {prefix}" in words for words in page_of(folder).words)


def test_bare_run_is_still_a_page(tmp_path):
    (tmp_path / "config.yaml").write_text("{}", encoding="utf-8")
    pd.DataFrame({"time_s": [1.5]}).to_parquet(tmp_path / "designs.parquet")
    page = Page(build_report(tmp_path).read_text(encoding="utf-8"))
    assert any("1.50\u202fs" in words for words in page.words)


@pytest.mark.slow
def test_rebuilding_leaves_no_stale_picture(folder):
    build_report(folder)
    (folder / "ops.parquet").unlink()
    build_report(folder)
    assert not (folder / "figures" / "roofline.png").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: shutil.rmtree(run), "is not a folder"),
        (lambda run: (run / "designs.parquet").unlink(), "did not finish and left no design; repeat it with"),
        (lambda run: (run / "designs.parquet").write_bytes(b"x"), "cannot be read as Parquet"),
        (lambda run: (run / "summary.json").write_text("{"), "summary.json.*is not JSON"),
        (lambda run: (run / "config.yaml").write_text("[1]"), "should hold a mapping"),
        (lambda run: pd.DataFrame({"a": [1]}).to_parquet(run / "designs.parquet"), "no column time_s"),
        (lambda run: pd.DataFrame({"time_s": []}).to_parquet(run / "designs.parquet"), "no design"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused(folder, spoil, message):
    spoil(folder)
    with pytest.raises(ConfigError, match=message):
        build_report(folder)


@pytest.mark.slow
def test_words_of_a_config_cannot_become_markup(folder):
    (folder / "overrides.txt").write_text("name=<script>alert(1)</script>\n", encoding="utf-8")
    frame = pd.read_parquet(folder / "designs.parquet")
    frame.assign(active_constraints="<script>alert(1)</script> 99%").to_parquet(folder / "designs.parquet")
    assert "<script>alert" not in build_report(folder).read_text(encoding="utf-8")
    assert "<script>alert" not in compare_runs(folder, folder).read_text(encoding="utf-8")


def test_the_box_of_certainty_has_the_proof_beside_the_error(folder):
    told = proof.how_sure(read_run(folder))
    assert "not known" in told.off[0]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    stratum = {"what": "kernels: gemm", "regime": "measured on this device", "rows": 12, "low": -0.1, "high": 0.25}
    other = stratum | {"what": "kernels: mla decode"}  # of which the design runs none
    (folder / "summary.json").write_text(json.dumps(summary | {"errors": [stratum, other]}), encoding="utf-8")
    frame = pd.read_parquet(folder / "designs.parquet")
    goal = frame["usd_per_million_tokens"]
    ends = {"usd_per_million_tokens_low": 0.8 * goal, "usd_per_million_tokens_high": 1.5 * goal}
    frame.assign(**ends).to_parquet(folder / "designs.parquet")
    told = proof.how_sure(read_run(folder))
    assert "(\u221220 % to +50 %)" in told.off[0]
    assert told.strata == (("kernels: gemm", "measured on this device", "12", "\u221210 % to +25 %"),)
    assert told.proven


def test_two_runs_side_by_side(folder, tmp_path):
    other = write_run(tmp_path / "other")
    config = yaml.safe_load((other / "config.yaml").read_text(encoding="utf-8"))
    config["objective"]["limits"]["capex_usd"] = 50e6
    (other / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    frame = pd.read_parquet(other / "designs.parquet")
    frame.assign(usd_per_million_tokens=1.1 * frame["usd_per_million_tokens"]).to_parquet(other / "designs.parquet")
    first, second = read_run(folder), read_run(other)
    rows = {(row.path, row.first, row.second) for row in comparison_pages.differences(first, second)}
    assert rows == {("objective.limits.capex_usd", "$45\u202fM", "$50\u202fM")}
    lines = {line.label: line.change for line in comparison_pages.numbers(first, second)}
    assert lines["Cost per million tokens"] == "+10.0 %"
    assert lines["Step time"] == "the same"
    page = Page(compare_runs(folder, other).read_text(encoding="utf-8"))
    assert page.open == []
    assert any("(+10.0 %)" in words for words in page.words)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (4.5e11, "B/s", "450 GB/s"), (0.518, "$", "$0.518"), (30.679e6, "$", "$30.7 M"), (0.3929, "%", "39.3 %"),
        (999.7, "W", "1 kW"), (4e-6, "s", "4 µs"), (4 * 365.25 * 86400, "s", "4 years"),
        (6e-9, "$/(B/s)", "$6.00 per G(B/s)"), (0.08 / 3.6e6, "$/J", "$0.0800 per kWh"), (46225.0, "mm²", "46,225 mm²"),
        (1024.0, "", "1,024"), (0.0, "s", "0 s"),
        (float("nan"), "s", "\u2013"), (None, "$", "\u2013"), (293e3, "count", "293 k"),
        (40e-12, "J/B", "40 pJ/B"),
    ],
)  # fmt: skip
def test_numbers_as_a_reader_wants_them(value, unit, shown):
    assert number(value, unit).replace("\u202f", " ") == shown


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("cluster.network.scale_up.fabric.bandwidth_bytes_per_s", "B/s"), ("a.hbm.capacity_bytes", "B"),
        ("a.peak_flops_per_s.bf16", "FLOP/s"), ("f.usd_per_bytes_per_s", "$/(B/s)"), ("f.latency_s", "s"),
        ("f.energy_j_per_byte", "J/B"), ("a.tdp_w", "W"), ("a.price_usd", "$"), ("facility.pue", ""), ("plan.tp", ""),
        ("f.transfers_per_s", "T/s"), ("f.requests_per_s", "/s"), ("f.static_w_per_bytes_per_s", "W/(B/s)"),
        ("f.usd_per_port_bytes_per_s", "$/(B/s)"), ("die.bytes_per_s_per_mm.hbm", "B/s/mm"), ("f.usd_per_fiber", "$"),
        ("r.noise_a_per_sqrt_hz", "A/√Hz"), ("p.waveguide_db_per_m", "dB/m"), ("m.hz_per_w", "Hz/W"),
        ("d.defects_per_mm2", "/mm²"), ("pool.ports_per_accelerator", ""), ("p.tlps_per_dllp", ""), ("a.flops", ""),
    ],
)  # fmt: skip
def test_units_are_read_from_names(path, unit):
    assert unit_of(path) == unit


def test_no_name_of_a_leaf_is_read_as_another_unit():
    """Every number that a configuration may name: what is per second is a rate, what ends in seconds a time."""
    classes = [value for value in targets().values() if dataclasses.is_dataclass(value)]
    names = {field.name for cls in classes for field in dataclasses.fields(cls) if "low" in field.metadata}
    assert len(names) > 200
    for name in names:
        unit, last = unit_of(f"x.{name}"), name.rpartition("_")[2]
        if "_per_" not in name:
            simple = {"s": "s", "bytes": "B", "w": "W", "usd": "$", "hz": "Hz", "m": "m", "mm": "mm", "mm2": "mm²"}
            simple |= {"db": "dB", "tokens": "tokens", "bits": "b"}
            assert unit == simple.get(last if "_" in name else "", ""), name
        elif name.endswith("_per_s"):
            assert "/s" in unit, name
            assert "years" not in number(4.6e10, unit), name
        else:
            assert unit in ("", "$") or "/" in unit, name


def test_axis_prefix_keeps_labels_short():
    assert axis_prefix(7.2e10, "B") == (1e9, "GB")
    assert axis_prefix(0.004, "s") == (1e-3, "ms")


def test_nothing_moves_the_goal(folder):
    frame = example_elasticities().assign(usd_per_million_tokens=0.0)
    frame.to_parquet(folder / "elasticities.parquet")
    with pytest.raises(MissingPart, match="no constant moves"):
        series.elasticities(read_run(folder))


def test_experiment_page(tmp_path):
    claims = pd.DataFrame(
        {
            "experiment": "megatron", "claim": ["step of 175B", "step of 1T", "idle"], "paper": [18.13, 94.42, None],
            "model": [18.9, 120.0, 3.0], "error": [0.0425, 0.271, None], "tolerance": [0.1, 0.1, None],
            "provenance": ["derived", "fitted 2 on 8", "not determined"], "ok": [True, False, None],
        }
    )  # fmt: skip
    rows = pd.DataFrame({"gpus": [8, 16], "time_s": [1.25, 0.7], "note": ["a|b", "c"]})
    page = write_experiment_report(tmp_path / "r", "Megatron", {"Claims": claims, "All rows": rows}, {"Fit": b"png"})
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Megatron\n")
    assert "1 of 2 claims with a bar are met." in text
    assert "| megatron | step of 175B | 18.13 | 18.9 | 4.2\u202f% | 10.0\u202f% | derived | yes |" in text
    assert "| **no** |" in text
    assert "| no bar |" in text
    assert "a\\|b" in text
    assert (tmp_path / "r" / "fit.png").read_bytes() == b"png"
    assert "![Fit](fit.png)" in text
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "r" / "all_rows.csv"), rows)
    again = write_experiment_report(tmp_path / "s", "Megatron", {"Claims": claims, "All rows": rows})
    assert (again.parent / "claims.csv").read_bytes() == (tmp_path / "r" / "claims.csv").read_bytes()


def test_a_long_table_of_claims_shows_what_misses(tmp_path):
    count = 50
    claims = pd.DataFrame(
        {
            "claim": [f"claim {i}" for i in range(count)], "paper": 1.0, "model": 1.0,
            "error": [0.3 if i == 17 else 0.0 for i in range(count)], "tolerance": 0.1, "provenance": "published",
        }
    )  # fmt: skip
    text = write_experiment_report(tmp_path / "r", "Long", {"Claims": claims}).read_text()
    assert "49 of 50 claims with a bar are met." in text
    assert "Those that miss it:" in text
    assert "claim 17" in text
    assert "claim 18" not in text
    assert "[50 rows as CSV](claims.csv)" in text
    text = write_experiment_report(tmp_path / "s", "Long", {"Claims": claims.assign(error=0.0)}).read_text()
    assert "50 of 50" in text
    assert "| claim |" not in text


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_words_of_a_figure_have_room(columns):
    """Labels end inside the picture, apart from each other, above the legend."""
    with style():
        figure, axes = canvas(2.4, columns)
        for one in axes:
            one.barh([0, 1], [1e6, 3e6], label="what it is")
            one.set_yticks([0, 1], ["a short one", "one.with.longer_name"])
            one.set(title="A title", xlabel="seconds")
            one.text(3e6, 1, " 3 MB")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center")
        render(figure)
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes: list[Any] = [one.get_tightbbox(renderer, bbox_extra_artists=one.texts) for one in axes]
        legend = figure.legends[0].get_window_extent(renderer)
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert legend.y1 <= box.y0 < box.y1 <= figure.bbox.y1
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))
