"""Stand-ins for tests of whatever uses the log: a key in memory, a disk that fails.

Nothing here is used by the product: a `LogKey` holds its secret in this process.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from stoilo.audit.format.note import (
    KeyType,
    Note,
    NoteSignature,
    cosign_note,
    private_vkey,
    render_note,
    render_vkey,
    sign_note,
)
from stoilo.audit.format.policy import (
    LogPolicy,
    Witness,
    render_history,
    render_policy,
)
from stoilo.audit.log.store import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "DURABLE_STEPS",
    "REMOTE_STEPS",
    "Fault",
    "FaultKind",
    "FaultyCall",
    "FaultyStore",
    "LogKey",
    "render_policies",
    "strike",
]

DURABLE_STEPS = (
    "create_log",
    "create_head",
    "write_policy",
    "commit",
    "move_tail",
    "swap_head",
    "write_tiles",
    "write_checkpoint",
    "record_published",
    "drop_partials",
)
REMOTE_STEPS = ("sign", "cosign")
Result = TypeVar("Result")


def render_policies(policy: LogPolicy) -> bytes:
    """Return a policy and its older ones as the file that `--policy` takes."""
    return render_policy(policy) + render_history(policy.older)


class LogKey:
    """A log key, and a witness key on demand, made from a seed.

    Args:
        origin: the log's name.
        seed: 32 bytes; the same seed gives the same key.
        witness_time: POSIX seconds of the cosignature; None for a log without witness.
    """

    def __init__(
        self, origin: str, seed: bytes = b"\7" * 32, witness_time: int | None = None
    ) -> None:
        self.origin = origin
        self.witness_time = witness_time
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self._witness = Ed25519PrivateKey.from_private_bytes(seed[::-1][:31] + b"\1")

    @property
    def vkey(self) -> str:
        """The log's verifier key."""
        return render_vkey(private_vkey(self.origin, KeyType.ED25519, self._private))

    @property
    def policy(self) -> LogPolicy:
        """The policy that trusts exactly this log (and its witness)."""
        log = private_vkey(self.origin, KeyType.ED25519, self._private)
        if self.witness_time is None:
            return LogPolicy((log,))
        key = private_vkey("witness.test/w", KeyType.COSIGNATURE, self._witness)
        return LogPolicy((log,), (Witness("w", key),), (), "w")

    def sign(self, body: bytes) -> bytes:
        """Return the signed note of a checkpoint body; signs whatever it is given."""
        signatures: list[NoteSignature] = [sign_note(body, self.origin, self._private)]
        if self.witness_time is not None:
            signatures.append(
                cosign_note(body, "witness.test/w", self._witness, self.witness_time)
            )
        return render_note(Note(body, tuple(signatures)))


class FaultKind(StrEnum):
    """What happens at a step."""

    IO_ERROR = "io_error"
    DISK_FULL = "disk_full"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        step: one of `DURABLE_STEPS` or `REMOTE_STEPS`.
        call: at which call of that step, from 1.
        kind: what happens.
        persisted: True when the step's work is done before it fails. Else nothing is
            done, but for tiles the first half.
    """

    step: str
    call: int
    kind: FaultKind
    persisted: bool


class FaultyCall:
    """A step outside the store that fails at one call: the signer, or the witnesses.

    Args:
        step: one of `REMOTE_STEPS`.
        work: what the step does.
        fault: strikes when its step is this one; None never.
    """

    def __init__(
        self, step: str, work: Callable[..., bytes], fault: Fault | None
    ) -> None:
        self._step, self._work, self._fault = step, work, fault
        self.calls = 0

    def __call__(self, *values: object) -> bytes:
        """Do the step, or fail before or after it as the fault says."""
        self.calls += 1
        fault = self._fault
        if fault is None or (fault.step, fault.call) != (self._step, self.calls):
            return self._work(*values)
        if fault.persisted:
            self._work(*values)
        raise strike(fault.kind)


class FaultyStore(DiskStore):
    """A real store in which one durable step fails, or the process dies there."""

    def __init__(self, data_dir: Path, fault: Fault | None = None) -> None:
        super().__init__(data_dir)
        self.fault = fault
        self.calls: Counter[str] = Counter()
        for step in DURABLE_STEPS:
            setattr(self, step, self._guarded(step, getattr(self, step)))

    def _guarded(self, step: str, work: Callable[..., Result]) -> Callable[..., Result]:
        def run(*values: object) -> Result:
            self.calls[step] += 1
            fault = self.fault
            if fault is None or (fault.step, fault.call) != (step, self.calls[step]):
                return work(*values)
            if fault.persisted:
                work(*values)
            elif step == "write_tiles":
                (tiles,) = values
                assert isinstance(tiles, list)
                self._tiles.write_tiles(tiles[: len(tiles) // 2])
            raise strike(fault.kind)

        return run


def strike(kind: FaultKind) -> OSError:
    """Return the error of a fault, or end this process."""
    if kind is FaultKind.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    code = errno.ENOSPC if kind is FaultKind.DISK_FULL else errno.EIO
    return OSError(code, os.strerror(code))
