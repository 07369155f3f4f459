"""The signer as the pipeline sees it, counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.server.log.ports import AdmissionSigner


class CountedSigner:
    """Passes admissions on and counts what comes back; thread-safe.

    Attributes:
        signed: admissions since the start.
        refused: refusals since the start.
    """

    def __init__(self, signer: AdmissionSigner) -> None:
        self._signer = signer
        self._lock = threading.Lock()
        self.signed = 0
        self.refused = 0

    def sign_admissions(
        self, admissions: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes | StoiloError]:
        """Return, for each (statement, proof), the envelope or the refusal."""
        answers = self._signer.sign_admissions(admissions)
        refused = sum(isinstance(one, StoiloError) for one in answers)
        with self._lock:
            self.refused += refused
            self.signed += len(answers) - refused
        return answers
