"""For every test: whatever a session starts or puts into the temporary directory goes."""

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

GRACE_S = 15.0  # for what dies with its parent: the kernel's signal takes a moment


def read_stat(pid):
    """Return state, parent and start time (clock ticks since boot), or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


def read_command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (OSError, UnicodeDecodeError):
        return [""]


def survivors(since):
    """Return the commands of our descendants, and of our orphans begun after `since`."""
    stats = {
        int(path.name): stat
        for path in Path("/proc").glob("[0-9]*")
        if (stat := read_stat(path.name)) and stat[0] not in "ZX"
    }

    def is_ours(pid):
        _, parent, start = stats[pid]
        if parent == 1 and start >= since:
            return read_command(pid)[0] == sys.executable
        while parent in stats and parent != os.getpid():
            parent = stats[parent][1]
        return parent == os.getpid()

    return {pid: " ".join(read_command(pid))[:300] for pid in stats if is_ours(pid)}


def our_folders():
    return set(Path(tempfile.gettempdir()).glob("stoilo-*"))


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left():
    """Fail at the end when processes or temporary directories of ours survive."""
    since, folders = read_stat(os.getpid())[2], our_folders()
    yield
    end = time.monotonic() + GRACE_S
    while (left := survivors(since)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == {}
    assert our_folders() - folders == set()
