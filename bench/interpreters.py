"""Peers that interpret Python in Python, asked from their own environment.

asteval and smolagents need packages that stoilo does not, so `make bench` installs them
beside (``.venv-bench``, see ``scripts/peers.sh``). This module asks; as a script, in that
environment, it answers: a line ``{"source", "n", "peer"}`` in, a line ``{"plain", "peer",
"error"}`` out, processor seconds of the same call in the same process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "interpreted_ratios"]

PEERS = ("asteval", "smolagents")
PYTHON = Path(__file__).parents[1] / ".venv-bench" / "bin" / "python"
ALLOWED = ["collections", "dataclasses", "heapq", "json", "math", "random", "re"]
PATIENCE_S = 10
_REPEATS = 3


def interpreted_ratios(source: str, n: int) -> dict[str, float | None]:
    """Return how many times plain CPython's time each peer needs; None: it cannot.

    A peer that is not installed is left out.
    """
    if not PYTHON.exists():
        return {}
    return {peer: _ask(source, n, peer) for peer in PEERS}


def _ask(source: str, n: int, peer: str) -> float | None:
    order = json.dumps({"source": source, "n": n, "peer": peer})
    try:
        done = subprocess.run(
            [str(PYTHON), str(Path(__file__))],
            input=order,
            capture_output=True,
            check=True,
            text=True,
            timeout=PATIENCE_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    answer = json.loads(done.stdout.splitlines()[-1])
    return None if answer["error"] else float(answer["peer"] / answer["plain"])


def _best_cpu(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _plain(source: str, n: int) -> Callable[[], Any]:
    module = types.ModuleType("peer_kernel")
    sys.modules[module.__name__] = module
    exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own kernels
    return lambda: module.run(n)


def _asteval(source: str, n: int) -> Callable[[], Any]:
    from asteval import Interpreter  # type: ignore[import-not-found]  # noqa: PLC0415 - of the other environment

    interpreter = Interpreter(config={"import": True, "importfrom": True})
    interpreter(source, raise_errors=True)
    return lambda: interpreter(f"run({n})", raise_errors=True)


def _smolagents(source: str, n: int) -> Callable[[], Any]:
    from smolagents.local_python_executor import (  # type: ignore[import-not-found]  # noqa: PLC0415 - same
        LocalPythonExecutor,
    )

    executor = LocalPythonExecutor(additional_authorized_imports=ALLOWED)
    executor.send_tools({})
    executor(source)
    return lambda: executor(f"run({n})").output


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    source, n = order["source"], order["n"]
    make = {"asteval": _asteval, "smolagents": _smolagents}[order["peer"]]
    try:
        plain, peer = _plain(source, n), make(source, n)
        if repr(plain()) != repr(peer()):
            return {"error": "another answer"}
        return {"plain": _best_cpu(plain), "peer": _best_cpu(peer), "error": ""}
    except Exception as error:  # noqa: BLE001 - whatever the peer cannot do
        return {"error": f"{type(error).__name__}: {error}"[:200]}


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.stdin.readline()))))
