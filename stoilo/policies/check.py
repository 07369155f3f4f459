"""The gate in a plain child process with limits: `stoilo policy check`, any system.

The researcher's own source is not hostile to its author, so no jail is needed; the
limits keep a bomb from taking the machine with it. Run as a module this file is the
child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from stoilo.core.errors import InternalError
from stoilo.policies.jailed import GATE_LIMITS, too_costly
from stoilo.policies.wire import answer_request, parse_answer, render_request

if TYPE_CHECKING:
    from stoilo.core.types import Verdict
    from stoilo.policies.gate import GateRequest


_START_UP_BYTES = 512 * 1024 * 1024  # address space that the interpreter itself maps
_KEPT_ENVIRONMENT = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR")


def check_in_child(
    request: GateRequest, wall_s: float = float(GATE_LIMITS.wall_s)
) -> Verdict:
    """Return the verdict on `request`, judged in a child process.

    Args:
        request: what to judge.
        wall_s: seconds after which the source counts as too costly to check.

    Raises:
        UsageError: unknown level, names too long.
        InternalError: ``STO-P004``, the child died of something else than its limits.
    """
    environment = {
        name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "stoilo.policies.check"],
            input=render_request(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=wall_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return too_costly(request)
    if done.returncode == 0:
        return parse_answer(done.stdout, request)
    if done.returncode < 0 or done.returncode == _OUT_OF_MEMORY:
        return too_costly(request)
    raise InternalError(
        "STO-P004",
        f"the checking process ended with status {done.returncode}",
        hint="run `python -I -m stoilo.policies.check` to see why it does not start",
    )


_OUT_OF_MEMORY = 70


def _limit_process() -> None:
    """Lower this process's limits where the system has them."""
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:  # Windows: the parent's time limit remains
        return
    memory = _START_UP_BYTES + GATE_LIMITS.memory_bytes
    for limit, value in (
        (resource.RLIMIT_CPU, GATE_LIMITS.cpu_s),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # a lower hard limit is already in force
            continue


def _main() -> int:
    """Answer one request from stdin on stdout."""
    _limit_process()
    try:
        answer = answer_request(sys.stdin.buffer.read())
    except MemoryError:
        return _OUT_OF_MEMORY
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
