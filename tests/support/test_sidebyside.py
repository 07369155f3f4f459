"""Two sessions side by side are one run: what fails in either is named, once, at its end."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a pytest with two sessions below it
CONFTEST = Path(__file__).parents[1] / "conftest.py"
# One session has an orphan; both look for it, and wait until both have looked.
ORPHAN = """
import pathlib, subprocess, sys, time
SLEEP = "import time; time.sleep(60)"
LEAVE = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', "
LEAVE += f"{SLEEP!r}], stdout=-3).pid)"
HERE = pathlib.Path(__file__).parent
def read(name):
    end = time.monotonic() + 120
    while not (HERE / name).exists():
        assert time.monotonic() < end, name
        time.sleep(0.01)
    return int((HERE / name).read_text())
def write(name, number):
    (HERE / "new").write_text(str(number))
    (HERE / "new").rename(HERE / name)
"""
OWN = """
def test_it_is_seen(find_survivors):
    pid = int(subprocess.check_output([sys.executable, "-c", LEAVE]))
    try:
        write("orphan", pid)
        assert pid in find_survivors(0)
        read("looked")
    finally:
        subprocess.run(["kill", str(pid)])
"""
OTHER = """
def test_it_is_not_seen(find_survivors):
    found = read("orphan") in find_survivors(0)
    write("looked", 1)
    assert not found
"""


@pytest.fixture
def run(tmp_path):
    """Write files of tests below our own conftest, and run them side by side."""

    def run(**files):
        folder = tmp_path / "tests"
        folder.mkdir()
        shutil.copy(CONFTEST, folder)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        for name, text in files.items():
            (folder / f"test_{name}.py").write_text(text)
        own = {k: v for k, v in os.environ.items() if "PYTEST" not in k}
        words = ["-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "tests"]
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=own | {"TMPDIR": str(tmp_path)},
            timeout=300,
        )

    return run


def test_failure_in_either_session_is_named_and_ends_the_run_with_1(run):
    done = run(
        good="def test_a(): pass\ndef test_b(): pass\n",
        bad="def test_c(): assert 0\ndef test_d(): pass\n",
        worse="def test_e(): assert 0\n",
    )
    said = done.stdout.splitlines()
    named = {line.split(" ")[1] for line in said if line.startswith("FAILED ")}
    assert done.returncode == 1
    assert named == {"tests/test_bad.py::test_c", "tests/test_worse.py::test_e"}
    assert re.fullmatch(r"=+ 2 failed, 3 passed in .*s =+", said[-1])


def test_only_the_session_that_left_an_orphan_sees_it(run):
    done = run(one=ORPHAN + OWN, two=ORPHAN + OTHER)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert " 2 passed in " in done.stdout
