import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "attack" / "cases"
SCRIPT = """
import json, sys, warnings
from stoilo.core.codec import skeleton
from stoilo.policies.levels import load_level
from io import StringIO
from stoilo.sandbox.process.task_job import run_call
from stoilo.sandbox.language.runtime import prepare_runtime
from stoilo.sandbox.process.channel import TaskRequest
warnings.simplefilter("ignore")
sources = json.load(sys.stdin)
runtime = prepare_runtime(load_level(sys.argv[1]))
opened = []
before = set(sys.modules)
sys.addaudithook(lambda name, args: opened.append(args[0]) if name == "open" else None)
for path in sorted(sources):
    request = TaskRequest(sources[path], "run", skeleton.encode({"parts": 3, "n": 3}))
    assert run_call(runtime, request.encode(), StringIO())["status"] == "ok", path
print(sorted(set(sys.modules) - before), opened)
"""


def run_programs(sources, level="numeric"):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout.strip() or done.stderr


def test_programs_load_no_module_and_open_no_file_after_preparing():
    sources = {
        path.stem: path.read_text()
        for folder in ("benign", "benign_numeric")
        for path in sorted(CASES.glob(f"{folder}/*.py"))
    }
    assert run_programs(sources) == "[] []"


@pytest.mark.slow
def test_training_programs_load_no_module_and_open_no_file_after_preparing():
    paths = sorted(CASES.glob("benign_tensor/*.py"))
    sources = {path.stem: path.read_text() for path in paths}
    assert run_programs(sources, "tensor") == "[] []"


def test_the_check_sees_a_late_import():
    source = "def run(d):\n    return 'x'.encode('cp437').hex()"
    assert "encodings.cp437" in run_programs({"late": source})
