"""The notebooks of the documentation from top to bottom, in this process and with less to search.

`python docs/notebooks/run.py` executes them as they are, through a kernel.
"""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
LESS = {
    "compare_products": {
        "h200,b200,mi355x": "h200,b200", "15ms,25ms,40ms": "25ms,40ms", '("30k", "25k", "20k")': '("30k",)',
        '"cluster.device_count=64",': '"cluster.device_count=64", "space.plan.micro_batch=[16,64,256]",'
        ' "space.plan.token_budget=[512,2048]",',
    },
    "front": {'"space.plan.pp=[1,2]",': '"space.plan={tp: [4, 8], pp: [1, 2]}",'},
    "gradient_search": {"range(300)": "range(3)"},
    "model_and_machine": {
        '("experiment=compute_optimal_machine")': '("experiment=compute_optimal_machine",'
        ' "space.plan.hidden=[2560,3072]",'
        ' "space.plan.layers=[24,28]", "space.plan.device_count=[128]")', "range(150)": "range(3)",
        "start = answer.scenario()": "start = jax.tree.map(jnp.asarray, answer.scenario())",  # for checks of types
    },
    "own_fabric": {},
}  # fmt: skip
"""Notebook -> what a reader waits for, and what stands in its place here."""


def cells(name: str) -> list[str]:
    result = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in result["cells"] if cell["cell_type"] == "code"]


def test_every_notebook_is_here():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(LESS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LESS)
def test_a_notebook_runs(name: str, capsys):
    names: dict = {"__name__": "notebook"}
    text = "\n".join(cells(name))
    for usual in LESS[name]:
        assert usual in text, usual
    for cell in cells(name):
        for usual, less in LESS[name].items():
            cell = cell.replace(usual, less)
        exec(compile(cell, f"{name}.ipynb", "exec"), names)
    assert capsys.readouterr().out
