"""A notebook under papermill, with tqdm around what comes from volunteers: as the pages say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from stoilo.testing.deployment import Deployment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CELLS = (
    'connection, count = "", 0',
    """
import stoilo
from tqdm import tqdm

conn = stoilo.connect_sync(connection)


def square(call):
    return call["n"] ** 2
""",
    """
run = conn.map(square, [{"n": n} for n in range(count)])
squares = [item.result for item in tqdm(run, desc="squares")]
tasks = [conn.create_task(square, {"n": n}) for n in (5, 6)]
for task in tqdm(stoilo.as_completed(tasks), desc="tasks", total=2):
    squares.append(task.result())
print("found", sorted(squares))
""",
)


@pytest.fixture(scope="module")
def papermill(tmp_path_factory):
    """A runner of papermill; in a folder of its own, for torch would load tqdm."""
    folder = tmp_path_factory.mktemp("papermill")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wanted = ROOT / "requirements" / "papermill.txt"
    words = ["install", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    subprocess.run(
        [*pip, *words, "--target", folder, "-r", wanted], check=True, timeout=300
    )
    own = {
        "PYTHONPATH": str(folder),
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder),
    }

    def run(*words):
        command = [sys.executable, "-m", "papermill", "--progress-bar", *words]
        return subprocess.run(
            command, env=os.environ | own, capture_output=True, text=True, check=False
        )

    return run


def test_notebook_with_injected_parameters_draws_bars_of_what_volunteers_sent(
    papermill, tmp_path
):
    cells = [nbformat.v4.new_code_cell(one.strip()) for one in CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "", "language": "python"}
    book = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(book, tmp_path / "book.ipynb")
    with Deployment(tmp_path / "data", volunteers=2) as up:
        given = ["-p", "connection", up.line.connection, "-p", "count", "4"]
        done = papermill(tmp_path / "book.ipynb", tmp_path / "out.ipynb", *given)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.ipynb").read_text())["cells"][-1]["outputs"]
    text = "".join(line for one in found for line in one["text"])
    for said in ("found [0, 1, 4, 9, 25, 36]", "squares: 100%", "tasks: 100%"):
        assert said in text
