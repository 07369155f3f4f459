"""A worker's program: it reads, updates and commits, and looks like a serial one.

    worker = Worker("w0", server, clock, total=100)
    for _ in worker.iterations():
        theta = worker.read("theta")
        worker.update("theta", step(theta))

The same program is BSP, SSP or ASP by its clock's limit alone. Source: Paracel's interface
(read, update, their batch forms, iter_commit), with an age for each key.

Updates are in when `Worker.update` returns, also those of a worker whose lease ends before
its iteration does; only the iteration does not count then, and the worker goes on at the
server's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from stoilo.learn.ps.reading import CachedReader
from stoilo.learn.ps.server import ParameterServer
from stoilo.learn.ps.service import ClockService
from stoilo.learn.ps.shards import Change, Push
from stoilo.learn.ps.values import Value

__all__ = ["Worker"]

_UPDATES = 1 << 20
"""Most updates of an iteration: a push's number is made of both."""


class Worker:
    """One worker; one thread uses it.

    Args:
        name: as the clock knows it.
        server: where the values are.
        clock: shared by all workers.
        total: iterations to do.
        run: names the training: one that is repeated under the same name after a crash
            repeats its pushes, which count once.
        period: without a limit, iterations after which a copy is fetched anew.
    """

    def __init__(
        self,
        name: str,
        server: ParameterServer,
        clock: ClockService,
        *,
        total: int,
        run: str = "run",
        period: int = 1,
    ) -> None:
        self.name, self.total = name, total
        self._server, self._service = server, clock
        self._source = f"{run}/{name}"
        self._reader = CachedReader[Value](name, clock.clock, self._fetch, period)
        self._iteration = 0
        self._pushes = 0

    def iterations(self) -> Iterator[int]:
        """Yield the number of each iteration as it may run; its commit follows its body.

        Numbers are left out where the worker was given up and the others went on.
        """
        while (iteration := self._service.await_start(self.name)) < self.total:
            self._iteration, self._pushes = iteration, 0
            yield iteration
            self._service.commit(self.name, iteration)
        self._service.finish(self.name)

    def read(self, key: str) -> Any:  # noqa: ANN401 - the caller knows what it keeps
        """Return a value that is new enough; waits for slower workers if need be."""
        return self.read_many([key])[key]

    def read_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return several values; what is too old is fetched in one request."""
        self._service.await_start(self.name)  # and a sign of life
        return self._reader.read_many(keys)

    def read_last(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return values with all iterations of all who live; for after one's own last."""
        self._service.await_time(self.total)
        return self._fetch(keys)

    def write(self, key: str, value: Value) -> None:
        """Make a value; where it is there already, it stays as it is."""
        self._server.create({key: value})

    def update(self, key: str, change: Value, function: str = "add") -> None:
        """Have ``function(value, change)`` done at the server; it is in afterwards."""
        self.update_many({key: change}, function)

    def update_many(self, changes: Mapping[str, Value], function: str = "add") -> None:
        """Update several values in one request."""
        sequence = self._iteration * _UPDATES + self._pushes
        self._pushes += 1
        entries = [Change(key, function, change) for key, change in changes.items()]
        self._server.push(Push(self._source, sequence, entries))
        apply = self._server.functions[function].apply
        self._reader.note_own(
            {key: partial(_own, apply, change) for key, change in changes.items()}
        )

    def sync(self) -> None:
        """Wait until all other workers are here, too."""
        self._service.sync(self.name)

    def _fetch(self, keys: Iterable[str]) -> dict[str, Value]:
        return {key: cell.value for key, cell in self._server.read(keys).items()}


def _own(
    apply: Callable[[Any, Any], Any],
    change: Value,
    value: Any,  # noqa: ANN401 - as `apply` takes it
) -> Any:  # noqa: ANN401 - as `apply` gives it
    return apply(value, change)
