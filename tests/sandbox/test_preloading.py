import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs" / "benign"
SCRIPT = """
import sys, warnings
from importlib import resources
from pathlib import Path
from stoilo.core import skeleton
from stoilo.core.levels import parse_level
from stoilo.sandbox.capture_print import TextBuffer
from stoilo.sandbox.jobs.task import run_call
from stoilo.sandbox.loader import prepare_runtime
from stoilo.sandbox.run import TaskRequest
warnings.simplefilter("ignore")
data = (resources.files("stoilo.policies") / "levels" / "numeric.toml").read_bytes()
runtime = prepare_runtime(parse_level(data))
opened = []
before = set(sys.modules)
sys.addaudithook(lambda name, args: opened.append(args[0]) if name == "open" else None)
for path in sorted(SOURCES):
    request = TaskRequest(SOURCES[path], "run", skeleton.encode({"parts": 3}))
    assert run_call(runtime, request.encode(), TextBuffer())["status"] == "ok", path
print(sorted(set(sys.modules) - before), opened)
"""


def run_programs(sources):
    script = SCRIPT.replace(
        "import sys, warnings", f"SOURCES = {sources!r}\nimport sys, warnings"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() or done.stderr


def test_programs_load_no_module_and_open_no_file_after_preparing():
    sources = {path.stem: path.read_text() for path in sorted(PROGRAMS.glob("*.py"))}
    assert run_programs(sources) == "[] []"


def test_the_check_sees_a_late_import():
    source = "def run(d):\n    return 'x'.encode('cp437').hex()"
    assert "encodings.cp437" in run_programs({"late": source})
