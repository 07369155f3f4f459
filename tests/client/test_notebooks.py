"""A notebook with parameters, as papermill injects them, run headless by nbclient."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

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


def with_parameters(connect: str, **parameters: int) -> nbformat.NotebookNode:
    """Return what papermill writes: the parameters' cell, then the injected one."""
    cell = nbformat.v4.new_code_cell
    injected = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    return nbformat.v4.new_notebook(
        cells=[
            cell("power = 2\ncount = 2", metadata={"tags": ["parameters"]}),
            cell(injected, metadata={"tags": ["injected-parameters"]}),
            cell(connect),
            cell(SEARCH),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


@pytest.mark.parametrize(
    ("parameters", "printed"),
    [
        ({}, "{'x': [0, 1], 'cube': [0, 1]}"),
        ({"power": 3, "count": 3}, "{'x': [0, 1, 2], 'cube': [0, 1, 8]}"),
    ],
)
def test_injected_parameters_reach_the_tasks(
    parameters: dict[str, int],
    printed: str,
    fake_thread: Any,
    in_jail: JailAnswerer,
    runner: Any,
    tmp_path: Path,
) -> None:
    address = fake_thread(FakeTaskService(in_jail)).address
    connect = (
        "import stoilo\n"
        f"place = stoilo.Address({address.target!r}, {address.token!r}, None, 'fake')\n"
        "conn = stoilo.connect_sync(place)"
    )
    path = tmp_path / "search.ipynb"
    nbformat.write(with_parameters(connect, **parameters), path)
    done = runner.execute(path)
    assert done.cells[-1].outputs[0].text.strip() == printed
