"""Find the processes of a deployment by what they run, below one process only."""

import os
import signal
from pathlib import Path

MARKS = {
    "signer": "stoilo.signer.process",
    "volunteer": "stoilo.executor.volunteer",
    "zygote": "stoilo.sandbox.process.zygote",
}


def children(pid):
    """Return the living children of `pid`."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has just ended
        return found
    for task in tasks:
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def descendants(pid):
    """Return every process below `pid`."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def command(pid):
    """Return a process's command line, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def victims(server, kind):
    """Return the processes of one kind below the server."""
    below = descendants(server)
    zygotes = [pid for pid in below if MARKS["zygote"] in command(pid)]
    roots = [
        pid for pid in zygotes if not any(pid in children(other) for other in zygotes)
    ]
    if kind == "zygote":
        return roots
    if kind == "child":
        return [pid for root in roots for pid in descendants(root)]
    return [pid for pid in below if MARKS[kind] in command(pid)]


def kill(pid):
    """SIGKILL one process; whether it was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
