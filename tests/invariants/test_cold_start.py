"""What a zygote loads before its level's libraries stays small: a cold start pays for it."""

import subprocess
import sys

PROBE = """
import sys
sys.modules["typing_extensions"] = None
import stoilo.sandbox.process.zygote, stoilo.sandbox.process.task_job
print(*sorted(name for name in sys.modules if name in {named!r}))
"""
SLOW = (
    *("_hashlib", "asyncio", "email", "json", "logging", "numpy", "selectors"),
    *("signal", "socket", "subprocess", "tempfile", "threading", "urllib"),
    *("stoilo.core.statement", "stoilo.policies"),
)


def loaded_of(named, before=""):
    script = f"{before}\n{PROBE.format(named=set(named))}"
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}\n{script}",
    ]
    return subprocess.run(
        command, capture_output=True, check=True, text=True
    ).stdout.split()


def test_zygote_loads_nothing_slow_that_it_does_not_need():
    assert loaded_of(SLOW) == []


def test_the_check_sees_what_is_loaded():
    assert loaded_of(SLOW, "import socket") == ["selectors", "socket"]
