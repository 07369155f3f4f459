"""From an order to a task: its arguments, stored once each, and its key.

A version of the parameters and a part of the data go to the backend once, however many
orders name them; a task holds their digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from stoilo.core.errors import UsageError
from stoilo.learn.backends.interface import Backend, Handle, Job
from stoilo.learn.core.models import Model
from stoilo.learn.core.orders import Order
from stoilo.learn.core.parts import Part
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.history import Tally
from stoilo.learn.driver.in_flight import Flight
from stoilo.learn.transport import asked


class Jobs:
    """Makes the jobs of one run.

    Attributes:
        ident: of the run; part of every key.
    """

    def __init__(
        self, model: Model, parts: Sequence[Part], ident: str, tally: Tally
    ) -> None:
        self.ident = ident
        self._model, self._parts, self._tally = model, parts, tally
        self._handles: dict[str, Handle] = {}

    def part_of(self, order: Order) -> Part:
        """Return the order's data.

        Raises:
            UsageError: ``STO-T012`` when there is no such part.
        """
        if not 0 <= order.part < len(self._parts):
            raise UsageError("STO-T012", f"there is no data part {order.part}")
        return self._parts[order.part]

    async def arguments(self, order: Order, backend: Backend) -> dict[str, object]:
        """Return the kernel's arguments, large ones as handles."""
        snapshot, part = order.snapshot, self.part_of(order)
        version = f"v{snapshot.version}"
        stored = {
            "parameters": (version, dict(snapshot.parameters)),
            "buffers": (f"{version}/buffers", dict(snapshot.buffers)),
            "data": (f"p{order.part}", {"x": part.x, "y": part.y}),
        }
        handles = {
            name: await self._put(place, value, backend)
            for name, (place, value) in stored.items()
        }
        return {
            **self._model.constants(),
            **handles,
            "rows": None if order.rows is None else list(order.rows),
            "settings": dict(order.settings),
            "version": snapshot.version,
        }

    async def _put(self, place: str, value: object, backend: Backend) -> Handle:
        if place not in self._handles:
            self._handles[place] = await backend.put(value)
            self._tally.sent_bytes += self._handles[place].size
        return self._handles[place]

    def forget(self, versions: frozenset[int]) -> None:
        """Let go of the versions that no order names any more; `versions` stay."""
        kept = {f"v{version}" for version in versions}
        for place in [n for n in self._handles if n[0] == "v"]:
            if place.partition("/")[0] not in kept:
                del self._handles[place]

    def make(
        self,
        flight: Flight,
        arguments: Mapping[str, object],
        expected: Expectation,
        label: str,
    ) -> Job:
        """Return the job of an order whose answer must be as `expected`."""
        order = flight.order
        told = asked(order)
        is_place = order.settings.get("give") == "parameters"
        return Job(
            key=self._key(flight, arguments),
            function=self._model.kernel(order.kernel),
            arguments=arguments,
            samples=order.samples,
            level=self._model.level,
            label=f"{label} {order.key}"[:128],
            check=expected.validator(told),
            # Of two trained models the distance says nothing: they must be equal.
            alike=None if is_place else expected.comparator(told),
        )

    def _key(self, flight: Flight, arguments: Mapping[str, object]) -> str:
        """Return a name for what is computed: same content, same key, in every process."""
        order = flight.order
        words = [self.ident, order.key, order.kernel, str(order.snapshot.version)]
        words += [str(flight.attempt), json.dumps(dict(order.settings), sort_keys=True)]
        # By content: after a restart the same order is the same task.
        words += [a.digest for a in arguments.values() if isinstance(a, Handle)]
        words.append(repr(order.rows))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:48]
