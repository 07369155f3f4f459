"""One rank of our own all-reduce, as a process of its own and without torch.

`python -m tests.support.summing KIND RANK LENGTH LIMIT_S FAULT HOST:PORT …` prints a line of
JSON: a digest of the sum's bits, or the error's code and after how many seconds it came.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stoilo.core.errors import StoiloError
from stoilo.core.listen import listen, parse_address
from stoilo.learn.cells.reduce import SCHEDULES, all_reduce, join
from stoilo.learn.core.tensors import Array

__all__ = ["draw", "start_ranks"]

ROOT = Path(__file__).resolve().parents[2]


def draw(rank: int, length: int) -> Array:
    """Return what a rank brings."""
    return np.random.default_rng(rank).standard_normal(length)


def start_ranks(
    addresses: Sequence[str], length: int, limit_s: float, faults: Mapping[int, str]
) -> list[dict[str, Any]]:
    """Sum over a ring of processes; return what each printed at its end, by rank.

    Args:
        addresses: where the ranks listen.
        length: numbers that each brings.
        limit_s: of their waits.
        faults: by rank: ``dies`` or ``stalls`` after joining, ``late`` before.
    """
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", __name__, "ring"),
                *map(str, (rank, length, limit_s)),
                *(faults.get(rank, "none"), *addresses),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(len(addresses))
    ]
    told = [process.communicate(timeout=60)[0] for process in running]
    return [json.loads(text) if text else {} for text in told]


def _main(
    kind: str, rank: int, length: int, limit_s: float, fault: str, peers: Sequence[str]
) -> dict[str, Any]:
    own = draw(rank, length)
    schedule = SCHEDULES[kind](rank, len(peers))
    with listen(peers[rank]) as listener:
        if fault == "late":
            time.sleep(0.5)
        began = time.monotonic()
        try:
            addresses = [parse_address(peer) for peer in peers]
            with join(rank, addresses, listener, b"token", limit_s) as link:
                began = time.monotonic()
                if fault == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault == "stalls":
                    time.sleep(2 * limit_s)
                all_reduce(own, schedule, link)
        except StoiloError as error:
            return {"error": error.code, "seconds": time.monotonic() - began}
    digest = hashlib.sha256(own.tobytes()).hexdigest()
    return {"digest": digest, "torch": "torch" in sys.modules}


if __name__ == "__main__":
    _, kind, rank, length, limit_s, fault, *peers = sys.argv
    print(json.dumps(_main(kind, int(rank), int(length), float(limit_s), fault, peers)))
