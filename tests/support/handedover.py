"""A coordinator in a process of its own, and a server whose volunteers are one real jail."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from stoilo.client.address import Address
from stoilo.testing.service import Answerer, FakeTaskService, serve_fake

__all__ = ["TOKENS", "CoordinatorProcess", "ServedFake"]

TOKENS = {"ada": "a" * 43, "bob": "b" * 43}


class ServedFake:
    """A `FakeTaskService` on a port, in a thread; its connection file is in `folder`."""

    def __init__(self, folder: Path, answer: Answerer) -> None:
        self.service, self.file = FakeTaskService(answer), folder / "account.json"
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        async with serve_fake(self.service) as self.address:
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        address: Address = self.address
        record = {"grpc": address.target, "token": address.token, "ca": None}
        self.file.write_text(json.dumps(record))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()


class CoordinatorProcess:
    """`stoilo learn coordinator` on a folder; after a kill on the same port again."""

    def __init__(self, folder: Path, server: Path, *words: str) -> None:
        self.folder, self._server, self._words = folder, server, words
        self.tokens = folder.with_suffix(".tokens")
        self.tokens.write_text("".join(f"{n} {t}\n" for n, t in TOKENS.items()))
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Start it and wait for its line."""
        places = ["--state", self.folder, "--connection", self._server]
        words = [*places, "--token-file", self.tokens, "--listen", self.address]
        command = [sys.executable, "-m", "stoilo", "learn", "coordinator"]
        self.process = subprocess.Popen(
            [*command, *map(str, words), *self._words],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = json.loads(self.process.stdout.readline())
        self.address, self.files = line["coordinator"], line["connections"]

    def kill(self) -> None:
        """``kill -9``, and wait for the end."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
