"""The pages' Python runs as printed: one server, every block in order, in IPython's cells."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stoilo

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONNECT = 'import stoilo\nconn = await stoilo.connect("stoilo-data/connection.json")'
PREPARE = {
    "howto/read-errors.md": "task = conn.create_task(lambda call: 2.5)",
}
FINISH = {"howto/write-validators.md": "print(result)"}
EXPECTED = {
    "tutorial/first-task.md": ["True", "5", "3.1416", "UserError True", "finished"],
    "howto/keep-long-tasks-going.md": ["True", "True"],
    "howto/use-map.md": [
        "3.1",
        "of 60",
        "True 60",
        "['n', 'root'] (5, 2)",
        "[32, 9, 64]",
    ],
    "howto/use-libraries.md": [
        "rate: True",
        "\nbest: LogisticRegression True",
        "\nsearch: True",
    ],
    "howto/train-a-model.md": [
        "good: True",
        "rounds done: True",
        "\nfit: True",
        "\ndpbgd: True",
        "\nsynchronous: True",
        "\nhalves: True True",
        "\nstale: True True",
        "\nvcasgd: True",
        "\ndownpour: True",
        "\nsandblaster: True",
        "\nlarge minibatch: True",
        "\nlocal rounds: True",
        "\nfedadam: True",
        "\nssp: True",
        "\nlogistic: True",
        "\nparallel: True True",
        "\nstopped: True True",
        "\nschedule: True",
        "\nepochs: 3 True",
        "\nbackups: True",
        "\nprivate: 1",
        "\nternary: True",
    ],
    "howto/watch-a-training.md": ["page: ['run.html', 'run.png', 'run.svg']"],
    "howto/plan-a-pipeline.md": [
        "layers: 0 1 2 3",
        "\nsame: True True",
        "\ncopies are slower: True",
    ],
    "howto/export-a-model.md": ["files: ['model-00001-of-00002", "\nsame: True"],
    "howto/prepare-training-data.md": [
        "parts: True",
        "\npair: True",
        "\ncollected: True True",
        "\nlines: 400 400",
        "\nrows: [",
        "\nlazy: True LazyPart(",
        "has most: False\nlargest class has most: True",
        "\nscores: True 4",
        "\nfar: True True",
    ],
    "howto/choose-a-codec.md": ["four bits: True"],
    "howto/run-a-parameter-server.md": ["learnt: True", "best: True", "workers: True"],
    "howto/write-a-paracel-program.md": [
        "zeros: [2, 3]",
        "variance: True",
        "centres: (3, 5)",
        "the same: True",
    ],
    "howto/write-validators.md": ["2.5"],
    "howto/check-source-before-sending.md": ["def task(call)", "3"],
    "howto/read-errors.md": ["2.5"],
}
SHELL = """\
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.loads(sys.argv[1]):
    shell.run_cell(cell, store_history=True).raise_error()
"""


def cells_of(page):
    cells = FENCE.findall((DOCS / page).read_text(encoding="utf-8"))
    assert cells
    before = [CONNECT] if "howto" in page else []
    before += [PREPARE[page]] if page in PREPARE else []
    return [*before, *cells, *([FINISH[page]] if page in FINISH else [])]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    local = stoilo.local(volunteers=3, data=folder / "stoilo-data")
    local.start()
    yield folder
    local.stop()


@pytest.mark.parametrize("page", EXPECTED)
def test_every_block_runs_and_prints_what_the_page_says(project, page):

    places = {
        "XDG_STATE_HOME": str(project / "state"),
        "IPYTHONDIR": str(project / "ipython"),
        "STOILO_CONNECTION": "stoilo-data/connection.json",
        "TORCHINDUCTOR_CACHE_DIR": str(project / "inductor"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SHELL, json.dumps(cells_of(page))],
        cwd=project,
        env=os.environ | places,
        input="yes\n",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [text for text in EXPECTED[page] if text not in done.stdout] == []
