"""How a run is driven: what has nothing to do with the method, and may change in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stoilo.learn import robust
from stoilo.learn.transport import Raw, Transport

__all__ = ["RunSettings"]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run is driven.

    Attributes:
        name: of the run, in labels; its checkpoint keeps it.
        in_flight: how many orders are out at most.
        tries: how often the researcher's own function may fail at the same work before
            the run ends.
        patience: how many answers and tasks in a row may come to nothing through others'
            fault before the run ends: a single cheat cannot end it.
        clip: bound on the influence of one answer; None for none.
        probe: compute a few samples here first, so that the bound holds from the first
            answer on; without it nothing is cut until `clip.least` answers are known.
        folder: of checkpoint and history; None keeps nothing.
        least_loss: least loss of one sample; answers below it are refused.
        transport: how the arrays of answers travel.
        outage_s: how long a server that does not answer is waited for, s, when there is
            something to submit; answers are waited for as long as it takes.
    """

    name: str = "run"
    in_flight: int = 8
    tries: int = 4
    patience: int = 200
    clip: robust.Clip | None = field(default_factory=robust.Clip)
    probe: bool = True
    folder: Path | None = None
    least_loss: float = -np.inf
    transport: Transport = field(default_factory=Raw)
    outage_s: float = 3600.0
