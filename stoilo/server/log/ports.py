"""What the server asks of the other parts, as protocols; fakes are in `stoilo.testing`.

The work engine's protocol is `stoilo.server.engines.interface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stoilo.core.errors import StoiloError

DAY_S = 86_400


class Log(Protocol):
    """The audit log as seen by its one writer (`stoilo.audit.log.sequencer.Sequencer`)."""

    def append_many(
        self, leaves: Sequence[bytes], labels: Sequence[str | None] | None = None
    ) -> list[int]:
        """Append durably and return the indices; a leaf already there keeps its index.

        Blocks until both databases of the log hold the leaves. Thread-safe.
        """
        ...

    def wait_published(self, index: int, timeout: float | None = None) -> object:
        """Block until a published checkpoint covers `index`; `timeout` in s."""
        ...

    def proof(self, index: int) -> bytes:
        """Return the tlog-proof of `index` against the newest published checkpoint."""
        ...

    def proofs(self, indices: Sequence[int]) -> list[bytes]:
        """Return the tlog-proofs of many, all against that one checkpoint."""
        ...


class LabelledLog(Log, Protocol):
    """A log whose leaves can be found again by their label."""

    def find_label(self, label: str) -> list[int]:
        """Return the places of the leaves labelled so, oldest first."""
        ...


class AdmissionSigner(Protocol):
    """The signer process as seen by the pipeline (`signer.client.SignerClient`)."""

    def sign_admissions(
        self, admissions: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes | StoiloError]:
        """Return, for each (statement, proof), the DSSE envelope or the refusal.

        The signer checks each proof itself. Raises when it cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What every statement of this server says about the project."""

    origin: str  # of project and log
    epoch: int  # number of the gate key's epoch
    epoch_end: int  # when the epoch ends, s; no admission outlives it
    language_digest: str  # version of the language layer
    python: str = "3.11"  # minor version of the executors, for example ``3.11``
    admission_life_s: int = 7 * DAY_S  # how long an admission holds, at most 14 days
