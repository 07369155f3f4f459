"""Layouts for cells under test, workers that know them, and members as processes.

    python -m tests.support.cells torch|plain|bounded:BYTES FD INPUTS RANK HOST…
    python -m tests.support.cells member [PEERS] --data DIR --listen ADDRESS

`torch` is the real worker; `plain` the same process without torch, links and the
researcher's source: it starts in a fraction of the time and answers a count.
`bounded` is the real worker; it is killed when an order takes it more memory than BYTES.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoilo.core.codec import skeleton
from stoilo.core.errors import UsageError
from stoilo.learn.cells import protocol as c
from stoilo.learn.cells import worker
from stoilo.learn.cells.member import CellMember

__all__ = [
    "MEMBER",
    "PLAIN",
    "TORCH",
    "Fated",
    "FatedSlices",
    "Leading",
    "Lying",
    "PlainWorker",
]

_HERE = "tests.support.cells"
TORCH, PLAIN, MEMBER = (
    (sys.executable, "-m", _HERE, kind) for kind in ("torch", "plain", "member")
)


@dataclass(frozen=True)
class Leading:
    """Rank 0 runs the kernel, the others idle; all agree on the sum of its answer."""

    def execute(self, kernel: str, kwargs: dict[str, Any], links: Any) -> Any:
        import torch  # noqa: PLC0415 - not in the test's process
        import torch.distributed as dist  # noqa: PLC0415 - as above

        from stoilo.learn.kernels import torch_models  # noqa: PLC0415 - as above

        found, total = None, torch.zeros(1, dtype=torch.float64)
        if links.rank == 0:
            found = getattr(torch_models, kernel)(kwargs)
            total += sum(float(one.sum()) for one in found["tensors"].values())
        dist.all_reduce(total, group=links.group)
        return found


@dataclass(frozen=True)
class Lying(Leading):
    """As `Leading`, but rank 0 says `lie` in place of `key`."""

    key: str = "samples"
    lie: int = 7

    def execute(self, kernel: str, kwargs: dict[str, Any], links: Any) -> Any:
        found = super().execute(kernel, kwargs, links)
        return None if found is None else {**found, self.key: self.lie}


@dataclass(frozen=True)
class Fated(Leading):
    """As `Leading`; one member meets its fate in one order, or while it joins, once.

    Attributes:
        memory: a folder in which it is noted what has happened.
        fate: kill, stop (both by signals), raise (the researcher's error), refuse (ours),
            sleep (for long).
        at: open, join, or the number of the member's order.
        rank: the member's.
    """

    memory: str
    fate: str = "kill"
    at: str = "0"
    rank: int = 1

    def execute(self, kernel: str, kwargs: dict[str, Any], links: Any) -> Any:
        self.pass_by(links.rank)
        return super().execute(kernel, kwargs, links)

    def pass_by(self, rank: int, at: str = "") -> None:
        """Note that the member is at a place, an order without one; it may end here."""
        if rank != self.rank:
            return
        memory = Path(self.memory)
        at = at or str(len([one for one in memory.iterdir() if one.name.isdigit()]))
        is_new = not (memory / at).exists()
        (memory / at).touch()
        if at != self.at or not is_new:
            return
        if self.fate == "raise":
            raise ValueError("of the researcher's own")
        if self.fate == "refuse":
            raise UsageError("STO-T040", "no plan for this model")
        if self.fate == "sleep":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL if self.fate == "kill" else signal.SIGSTOP)


@dataclass(frozen=True)
class FatedSlices(Fated):
    """Data parallel in slices; one member meets its fate between forward and backward."""

    def execute(self, kernel: str, kwargs: dict[str, Any], links: Any) -> Any:
        from stoilo.learn.cells.data import Data  # noqa: PLC0415 - as above

        def judge(output: Any, y: Any) -> Any:
            self.pass_by(links.rank)
            return loss(output, y)

        loss = kwargs["loss"]
        return Data(shard=True).execute(kernel, {**kwargs, "loss": judge}, links)


class PlainWorker(worker.Worker):
    """A worker without torch; ``Fated`` is the only layout that means something to it."""

    def open(self, asked: c.Open) -> c.Done:
        layout: Any = c.read_layout(asked.layout, asked.options)
        self._fated: Any = layout if asked.layout == "Fated" else None
        self._pass_by("open")
        odd = {"torch": "0.0"} if asked.layout == "Lying" and self._rank else {}
        return c.Done(port=1, versions={**c.read_versions(), **odd})

    def join(self, asked: c.Join) -> c.Done:
        del asked
        self._pass_by("join")
        return c.Done()

    def execute(self, asked: c.Execute) -> c.Done | c.Failed:
        for one in (asked.source, *asked.blobs):
            self._read(one)
        try:
            self._pass_by("")
        except ValueError as error:
            return c.Failed("STO-G200", "ValueError", str(error), is_link=False)
        return c.Done(
            skeleton.encode({"kernel": asked.kernel, "rank": self._rank}), 0.5
        )

    def _pass_by(self, at: str) -> None:
        if self._fated is not None:
            self._fated.pass_by(self._rank, at)


class BoundedWorker(worker.Worker):
    """A worker on a machine with so many bytes for orders, files that it reads aside.

    Rank 0, which puts answers together, has three times as many.
    """

    most = 0

    def join(self, asked: c.Join) -> c.Done:
        done = super().join(asked)
        most = read_own_bytes() + self.most * (1 if self._rank else 3)

        def watch() -> None:
            while read_own_bytes() <= most:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True).start()
        return done


def read_own_bytes() -> int:
    """Return this process's memory that no file could give back, bytes."""
    told = Path("/proc/self/status").read_text().partition("RssAnon:")[2]
    return int(told.split()[0]) * 1024


def main(kind: str, *words: str) -> int:
    """Be a worker or a member."""
    c.LAYOUTS.update(dict.fromkeys(("Leading", "Lying", "Fated", "FatedSlices"), _HERE))
    if kind == "member":
        *peers, _, data, _, address = words
        ours = [one for text in peers for one in text.split(",")]
        service = CellMember(Path(data), address, peers=ours, program=PLAIN)
        sys.stdout.write(json.dumps({"cell": service.place.shard}) + "\n")
        sys.stdout.flush()
        service.run()
    kind, _, most = kind.partition(":")
    BoundedWorker.most = int(most or 0)
    makers = {"plain": PlainWorker, "bounded": BoundedWorker}
    return worker.main(words, makers.get(kind, worker.Worker))


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
