"""A worker near the server: many reads and pushes in one pass over its samples.

For project-run workers, in a thread beside the server. What is pushed is always the
difference since the last *push*, and what is left is pushed before each read: so no step
counts twice and none is lost, however reads and pushes fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stoilo.learn.ps.server import ParameterServer
from stoilo.learn.ps.shards import Change, Push
from stoilo.learn.tensors import Array, Tensors, add

__all__ = ["Replica"]


@dataclass(slots=True)
class Replica:
    """One worker of the asynchronous modes.

    Attributes:
        worker: its name, that of its pushes.
        server: where the parameters are.
        names: keys of the parameters.
        fetch: steps between two reads (``n / 800`` in the published program).
        push: steps between two pushes (``n / 1000``, at least 10); 1 and 1 is agd.
        sequence: of the next push; one that goes on after a crash starts at the last one
            that was not acknowledged.
    """

    worker: str
    server: ParameterServer
    names: tuple[str, ...]
    fetch: int
    push: int
    sequence: int = 0

    def run(self, steps: Iterable[Callable[[Tensors], Mapping[str, Array]]]) -> None:
        """Do the steps in order; each gives what is to be added to the parameters."""
        here: dict[str, Array] = {}
        pushed: dict[str, Array] = {}
        for index, step in enumerate(steps):
            if index % self.fetch == 0:
                self._push(here, pushed)
                here = pushed = self._read()
            here = add(here, step(here))
            if (index + 1) % self.push == 0:
                self._push(here, pushed)
                pushed = here
        self._push(here, pushed)

    def _read(self) -> dict[str, Array]:
        return {n: np.asarray(c.value) for n, c in self.server.read(self.names).items()}

    def _push(self, here: Mapping[str, Array], pushed: Mapping[str, Array]) -> None:
        if here is pushed:
            return
        changes = [Change(n, "add", array - pushed[n]) for n, array in here.items()]
        self.server.push(Push(self.worker, self.sequence, changes))
        self.sequence += 1
