"""The binding to libseccomp is found without starting anything, where a tree is given."""

import subprocess
import sys

import pytest

PROBE = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in
                 ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork") else None)
from pathlib import Path
from stoilo.sandbox.kernel.filters import load_binding
bpf = load_binding({tree})
assert bpf.resolve_syscall(bpf.system_arch(), 0)
print(sorted(set(started)))
"""


def started_by(tree):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(tree=tree)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_frozen_program_starts_nothing(tmp_path):
    assert started_by(f"Path({str(tmp_path)!r})") == "[]"


def test_unfrozen_program_asks_others():
    pytest.importorskip("pyseccomp")
    assert "Popen" in started_by("None")
