"""A parent that a command's orphans come to: ``python -I reaper.py WORD…``.

Runs this interpreter with the words. What the command, or anything below it, leaves without
a parent becomes a child of this process instead of going to the nearest reaper further up,
where sessions of tests that run side by side could not tell theirs apart. Ends with the
command and as it did; whoever kills this process kills the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from stoilo.sandbox.kernel.calls import kill_with_parent, prctl

__all__ = ["PR_SET_CHILD_SUBREAPER", "reap"]

PR_SET_CHILD_SUBREAPER: Final = 36


def reap(words: Sequence[str]) -> int:
    """Run this interpreter with `words` and return its exit status, 128 + signal."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    command = subprocess.Popen(
        [sys.executable, *words],
        preexec_fn=kill_with_parent,  # noqa: PLW1509 - there is one thread
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what it means
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(reap(sys.argv[1:]))
