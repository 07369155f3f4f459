"""I2, running: no process of a whole deployment unpickles anything.

The researcher's process and every one that inherits its environment (server, signer,
volunteers) load a hook that notes the audit event ``pickle.find_class``.
"""

import os
import subprocess
import sys

import pytest

HOOK = """\
import os, sys

def note(event, arguments):
    if event == "pickle.find_class":
        fd = os.open(os.environ["PICKLE_NOTES"], os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{sys.argv} {arguments}\\n".encode())
        os.close(fd)

sys.addaudithook(note)
fd = os.open(os.environ["PICKLE_HOOKED"], os.O_WRONLY | os.O_APPEND)
os.write(fd, b".")
os.close(fd)
"""
RESEARCHER = """\
import stoilo

def squares(call):
    import numpy as np
    return np.arange(call["n"]) ** 2

with stoilo.local(volunteers=2) as conn:
    result = conn.create_task(squares, kwargs={"n": 4}).result(timeout=240)
    assert result.tolist() == [0, 1, 4, 9], result
"""
CONTROL = "import pickle, fractions; pickle.loads(pickle.dumps(fractions.Fraction(1)))"
PROCESSES = 5  # researcher, server, signer, two volunteers


@pytest.fixture
def run_hooked(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    notes, hooked = tmp_path / "notes", tmp_path / "hooked"
    notes.touch()
    hooked.touch()
    places = {"PICKLE_NOTES": str(notes), "PICKLE_HOOKED": str(hooked)}
    environ = os.environ | places | {"PYTHONPATH": str(tmp_path)}

    def run(program):
        script = tmp_path / "researcher.py"
        script.write_text(program, encoding="utf-8")
        subprocess.run([sys.executable, script], env=environ, check=True, timeout=280)
        return notes.read_text(encoding="utf-8"), hooked.stat().st_size

    return run


def test_task_with_arrays_travels_without_a_pickle(run_hooked):
    noted, hooked = run_hooked(RESEARCHER)
    assert noted == ""
    assert hooked >= PROCESSES


def test_hook_would_note_a_pickle(run_hooked):
    noted, _ = run_hooked(CONTROL)
    assert "Fraction" in noted
