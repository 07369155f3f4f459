"""Stand-ins for tests of whatever talks to witnesses: a growing log, a way without a net.

Nothing here is used by the product.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from stoilo.audit.format.merkle import (
    Checkpoint,
    consistency_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.note import parse_vkey
from stoilo.audit.witness.keys import WitnessKey, make_witness_key
from stoilo.audit.witness.protocol import AddCheckpoint, Answer
from stoilo.audit.witness.service import STORE_FILE, WitnessService, WitnessStore
from stoilo.core.errors import UnreachableError
from tests.support.faulty_log import LogKey
from tests.support.memory_tree import MemoryTree

__all__ = ["GrowingLog", "LocalWitness"]


class GrowingLog:
    """A log in memory whose checkpoints of every size can be had.

    Args:
        key: signs them.
        history: another text gives another history (a fork).
    """

    def __init__(self, key: LogKey, history: str = "") -> None:
        self.key = key
        self._history = history
        self._tree = MemoryTree()

    def _grow(self, size: int) -> None:
        while self._tree.size < size:
            leaf = f"{self._history} leaf {self._tree.size}"
            self._tree.append(leaf_hash(leaf.encode()))

    def body(self, size: int) -> bytes:
        """Return the unsigned checkpoint of `size` leaves."""
        self._grow(size)
        root = range_root(0, size, self._tree.node)
        return render_checkpoint(Checkpoint(self.key.origin, size, root))

    def note(self, size: int) -> bytes:
        """Return the signed checkpoint of `size` leaves."""
        return self.key.sign(self.body(size))

    def prove(self, size: int) -> Callable[[int], list[bytes]]:
        """Return the maker of consistency proofs to `size`."""
        self._grow(size)
        return lambda old: consistency_proof(old, size, self._tree.node)

    def request(self, old: int, size: int) -> AddCheckpoint:
        """Return an honest request to go from `old` to `size`."""
        note = self.note(size)
        proof = self.prove(size)(old) if old <= size else []
        return AddCheckpoint(old, tuple(proof), note)


class LocalWitness:
    """A real witness in this process, reached without a network; also its `Wire`.

    Attributes:
        dead: does not answer.
        hold: answers only once this is set.
        forced: answered instead of what the witness says, None for none.
        asked: how many requests came.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        log: LogKey,
        clock: Callable[[], int] = lambda: int(time.time()),
    ) -> None:
        self.key: WitnessKey = make_witness_key(directory, name)
        self.store = WitnessStore(directory / STORE_FILE, self.key.vkey)
        self.service = WitnessService(
            self.key,
            [parse_vkey(log.vkey)],
            self.store,
            clock=clock,
            evidence=directory / "evidence",
        )
        self.dead = False
        self.hold = threading.Event()
        self.hold.set()
        self.forced: Answer | None = None
        self.asked = 0

    def post(self, body: bytes, deadline: float) -> Answer:
        """Answer a request."""
        self.asked += 1
        held = not self.hold.wait(max(deadline - time.monotonic(), 0))
        if self.dead or held:
            raise UnreachableError("STO-L058", "it cannot be reached: it is dead")
        if self.forced is not None:
            return self.forced
        answer = self.service.add_checkpoint(body)
        return Answer(answer.status, answer.body)

    def close(self) -> None:
        """Nothing is kept open."""
