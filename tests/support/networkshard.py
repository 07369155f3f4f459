"""A shard on the network, as a process: started, killed, started again on its port."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

from stoilo.learn.store.place import ShardPlace, read_place

__all__ = ["NetworkShard"]


class NetworkShard:
    """`stoilo learn shard` on a folder, or another program with the same arguments."""

    def __init__(
        self, folder: Path, program: tuple[str, ...] = (), more: tuple[str, ...] = ()
    ) -> None:
        self.folder, self._more = folder, more
        self._program = program or (sys.executable, "-m", "stoilo", "learn", "shard")
        self.address = "127.0.0.1:0"
        self.start()

    @property
    def place(self) -> ShardPlace:
        """What its connection file says."""
        return read_place(self.folder / "connection.json")

    def start(self) -> None:
        """Start it and wait for its line; after the first time on the same port."""
        self.process = subprocess.Popen(
            [
                *self._program,
                "--data",
                str(self.folder),
                "--listen",
                self.address,
                *self._more,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = json.loads(self.process.stdout.readline())
        self.address = next(iter(self.line.values()))

    def kill(self) -> None:
        """``kill -9``, and wait for the end."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
