"""A notebook with parameters, run headless by nbclient and by papermill."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from papermill import execute_notebook

from stoilo.testing.service import FakeTaskService
from tests.support.jailed import JailAnswerer

ROOT = Path(__file__).resolve().parents[2]
SEARCH = """
def cube(call):
    return {"x": call["x"], "cube": call["x"] ** power}

run = conn.map(cube, [{"x": x} for x in range(count)])
print(run.to_columns())
"""


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import run_notebooks  # noqa: PLC0415 - a script's folder, for this test

    yield run_notebooks
    sys.modules.pop("run_notebooks")


def write_notebook(path: Path, connect: str) -> None:
    """Write a notebook with a cell of parameters, as papermill finds it by its tag."""
    cell = nbformat.v4.new_code_cell
    parameters = cell("power = 2\ncount = 2", metadata={"tags": ["parameters"]})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[parameters, cell(connect), cell(SEARCH)],
        metadata={"kernelspec": kernel, "language_info": {"name": "python"}},
    )
    nbformat.write(notebook, path)


@pytest.fixture
def notebook(fake_thread: Any, in_jail: JailAnswerer, tmp_path: Path) -> Path:
    address = fake_thread(FakeTaskService(in_jail)).address
    connect = (
        "import stoilo\n"
        f"place = stoilo.Address({address.target!r}, {address.token!r}, None, 'fake')\n"
        "conn = stoilo.connect_sync(place)"
    )
    write_notebook(tmp_path / "search.ipynb", connect)
    return tmp_path / "search.ipynb"


def test_notebook_runs_headless(notebook: Path, runner: Any) -> None:
    done = runner.execute(notebook)
    printed = done.cells[-1].outputs[0].text.strip()
    assert printed == "{'x': [0, 1], 'cube': [0, 1]}"


def test_papermill_s_parameters_reach_the_tasks(
    notebook: Path, runner: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in runner.places(str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    given = {"power": 3, "count": 3}
    done = execute_notebook(notebook, None, given, progress_bar=False)
    printed = done.cells[-1].outputs[0].text.strip()
    assert printed == "{'x': [0, 1, 2], 'cube': [0, 1, 8]}"
