"""Groups of processes on torch.distributed (gloo), as a test wants them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

__all__ = ["hosted", "run_ranks"]

_kept: list[subprocess.Popen[bytes]] = []


@contextmanager
def hosted() -> Iterator[subprocess.Popen[bytes]]:
    """Give the process that forks ranks; inside, `run_ranks` starts no other one.

    It imports torch, which takes seconds: nothing of that is left in the test's own.
    """
    if _kept:
        yield _kept[0]
        return
    words, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    # It ends with its input.
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as host:
        _kept.append(host)
        try:
            yield host
        finally:
            _kept.remove(host)


def run_ranks(
    work: Callable[..., Any], size: int, *values: object, limit_s: float = 60
) -> list[Any]:
    """Call `work(rank, size, *values)` in `size` new processes that form a group.

    They are forked from a process that has torch and ran no work of its own.

    Args:
        work: a function of a test's module, found again by its name.
        limit_s: how long all may take; also the time-out of the group's own calls.

    Returns:
        What each rank returned, by rank.

    Raises:
        AssertionError: a rank raised, died or was not done in time; it is named.
    """
    with tempfile.TemporaryDirectory() as folder, hosted() as host:
        told = Path(folder) / "told"
        told.write_bytes(pickle.dumps((work, size, values, limit_s)))
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(f"{folder}\n".encode())
        host.stdin.flush()
        assert host.stdout.readline() == b"done\n"
        found = pickle.loads((Path(folder) / "found").read_bytes())  # noqa: S301 - our own file
    wrong = {rank: found.get(rank, "died or hung") for rank in range(size)}
    wrong = {rank: what for rank, what in wrong.items() if isinstance(what, str)}
    assert not wrong, wrong
    return [found[rank][0] for rank in range(size)]


def _be_rank(folder: Path, rank: int, told: tuple[Any, ...]) -> None:
    import torch  # noqa: PLC0415 - not in the test's process
    import torch.distributed as dist  # noqa: PLC0415 - as above

    work, size, values, limit_s = told
    torch.set_num_threads(1)  # as many ranks as processors, or more
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=limit_s),
    )
    try:
        answer: object = (work(rank, size, *values),)
    except Exception as error:  # noqa: BLE001 - the test's to see
        answer = f"{type(error).__name__}: {error}"
    (folder / f"answer{rank}").write_bytes(pickle.dumps(answer))
    dist.destroy_process_group()


def _host(folder: Path) -> None:
    told = pickle.loads((folder / "told").read_bytes())  # noqa: S301 - our own file
    _, size, _, limit_s = told
    fork = multiprocessing.get_context("fork")
    ranks = [
        fork.Process(target=_be_rank, args=(folder, rank, told)) for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(limit_s)
        process.kill()
    files = {rank: folder / f"answer{rank}" for rank in range(size)}
    found = {r: pickle.loads(f.read_bytes()) for r, f in files.items() if f.exists()}  # noqa: S301 - our own file
    (folder / "found").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    import torch._dynamo
    import torch.distributed  # noqa: F401 - both once, before the forks

    replies = os.dup(1)
    os.dup2(2, 1)  # what ranks print is no reply
    for line in sys.stdin:
        _host(Path(line.rstrip("\n")))
        os.write(replies, b"done\n")
