"""Every notebook runs from top to bottom in a kernel of its own; its claims are asserts."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "notebooks"
FAST = {"downpour", "large_minibatch", "vcasgd"}
DEPLOYED = {"ddl", "torchvision_resnet18"}  # in test_deployed.py, on volunteers
SLOW = {
    "architecture_search",
    "checkpoints",
    "comparison",
    "data_and_fit",
    "local_rounds",
    "low_level",
    "parameter_server",
    "resnet18",
    "robust_rules",
    "sandblaster",
    "simulated_volunteers",
}
MACHINE = re.compile(
    r"/(home|root|tmp|work|usr|Users)/|C:\\|\b[0-9a-f]{32,}\b|Traceback"
)
ALL = sorted(FOLDER.glob("*.ipynb"))


def outputs_of(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell["outputs"] for cell in notebook["cells"] if "outputs" in cell]


@pytest.mark.parametrize(
    "name",
    [*sorted(FAST), *(pytest.param(n, marks=pytest.mark.slow) for n in sorted(SLOW))],
)
def test_notebook_holds_what_it_claims(runner, name):
    runner.execute(FOLDER / f"{name}.ipynb")


def test_every_notebook_is_run_by_a_test():
    assert {path.stem for path in ALL} == FAST | SLOW | DEPLOYED


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_committed_outputs_name_no_machine(path):
    assert MACHINE.findall(json.dumps(outputs_of(path))) == []


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_committed_notebook_was_run_as_it_stands(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_notebook_is_prose_code_and_a_claim(path):
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].source.startswith("# ")
    assert sum(cell.cell_type == "markdown" for cell in cells) >= 3
    assert any("assert " in c.source for c in cells if c.cell_type == "code")


def test_tutorial_leads_to_every_script_and_notebook():
    page = (ROOT / "docs" / "tutorial" / "examples.md").read_text(encoding="utf-8")
    assert [path.stem for path in ALL if f"notebooks/{path.name})" not in page] == []
    shared = {"commandline", "digits"}
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")} - shared
    assert [name for name in scripts if f"examples/{name}.py)" not in page] == []


def test_claim_that_does_not_hold_fails_the_run(runner, tmp_path):
    cells = [nbformat.v4.new_code_cell("assert await asyncio.sleep(0, 1) == 2")]
    cells.insert(0, nbformat.v4.new_code_cell("import asyncio"))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        runner.execute(tmp_path / "wrong.ipynb")
