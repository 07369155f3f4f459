"""A fake server for each test, and a jail that answers for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import pytest

from stoilo.client.address import Address
from stoilo.client.connection import Connection, connect
from stoilo.client.session import Journal
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake
from tests.support.jailed import JailAnswerer


@pytest.fixture(scope="session")
def in_jail() -> Iterator[JailAnswerer]:
    with JailAnswerer() as answerer:
        yield answerer


@pytest.fixture
def with_fake() -> Callable[..., Any]:
    """Run ``body(conn, service)`` against a fake that answers 5 or what is given."""

    def run(
        body: Callable[[Connection, FakeTaskService], Awaitable[Any]],
        service: FakeTaskService | None = None,
        **options: Any,
    ) -> Any:
        fake = service or FakeTaskService(lambda _request, _service: Outcome.of(5))

        async def main() -> Any:
            options.setdefault("journal", Journal(None))
            async with (
                serve_fake(fake) as address,
                connect(address, **options) as conn,
            ):
                return await body(conn, fake)

        return asyncio.run(main())

    return run


class FakeThread:
    """A fake server in a thread of its own, for callers that block."""

    def __init__(self, service: FakeTaskService) -> None:
        self.service = service
        self.address: Address | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with serve_fake(self.service) as self.address:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(60)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


@pytest.fixture
def fake_thread() -> Iterator[Callable[[FakeTaskService], FakeThread]]:
    """Serve fakes until the test ends, for callers that block."""
    with contextlib.ExitStack() as stack:
        yield lambda service: stack.enter_context(FakeThread(service))
