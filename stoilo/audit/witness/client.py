"""The log's side: have a checkpoint cosigned by all witnesses at once, until a quorum has.

Each witness has a thread and a kept connection of its own, so that a dead or slow one
costs no other any time. A witness's word is hostile: a cosignature counts when it verifies
under the key of the policy, and a size that it tells only chooses the next proof.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint
from stoilo.audit.format.note import (
    Note,
    NoteSignature,
    parse_note,
    parse_vkey,
    render_note,
    verify_signature,
)
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    Witness,
    has_quorum,
    parse_policy,
)
from stoilo.audit.log.publisher import Prove
from stoilo.audit.witness.protocol import (
    MAX_ANSWER_BYTES,
    AddCheckpoint,
    Answer,
    Status,
    parse_cosignatures,
    parse_told_size,
    render_add_checkpoint,
)
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.http_client import HttpClient, HttpError

NO_WITNESSES = LogPolicy(())
"""The default: nobody cosigns, and the docs say what does not hold then."""


def read_witnesses(path: str) -> LogPolicy:
    """Return the policy in file `path`, its logs left out; empty: `NO_WITNESSES`.

    Raises:
        UsageError: ``STO-L003`` when it cannot be read or is malformed, ``STO-L003``
            when the quorum can never be reached.
    """
    if not path:
        return NO_WITNESSES
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "STO-L003", f"the log policy cannot be read: {error.strerror}"
        ) from error
    try:
        policy = parse_policy(text)
    except TrustError as error:
        raise UsageError("STO-L003", f"the log policy: {error.message}") from error
    if policy.logs:
        raise UsageError(
            "STO-L003",
            "the log policy names a log",
            hint="leave the log line out: the project's own is added",
        )
    for one in policy.witnesses:
        if one.url and not _is_reachable(one.url):
            raise UsageError("STO-L003", f"the log policy: no such URL: {one.url!r}")
    check_witnesses(policy)
    return policy


def _is_reachable(url: str) -> bool:
    """Whether a URL names a host and a port that there can be."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_witnesses(policy: LogPolicy) -> None:
    """Raise ``STO-L003`` when the witnesses that have an address are no quorum."""
    asked = {one.name for one in policy.witnesses if one.url}
    if not has_quorum(policy, asked):
        raise UsageError(
            "STO-L003",
            f"the quorum {policy.quorum!r} needs witnesses that have no URL",
            hint="witness NAME VKEY URL",
        )


def with_log(policy: LogPolicy, vkey: str) -> LogPolicy:
    """Return `policy` with the project's own log; raises ``STO-L003``.

    A witness must not be the log itself under another name.
    """
    key = parse_vkey(vkey)
    if key.public in {one.key.public for one in policy.witnesses}:
        raise UsageError("STO-L003", "a witness has the log's own key")
    return dataclasses.replace(policy, logs=(key,))


def without_urls(policy: LogPolicy) -> LogPolicy:
    """Return what readers verify by: keys, groups and quorum."""
    witnesses = tuple(dataclasses.replace(one, url="") for one in policy.witnesses)
    return dataclasses.replace(policy, witnesses=witnesses)


_PATH = "/add-checkpoint"
_READ_S = 5.0  # as long as a quorum is waited for
_SHORTEST_S = 0.01


class Wire(Protocol):
    """Posts requests to one witness; used from one thread."""

    def post(self, body: bytes, deadline: float) -> Answer:
        """Return the answer; raises ``STO-L058``. `deadline` is of `time.monotonic`."""

    def close(self) -> None:
        """Give up the connection."""


class HttpWire:
    """HTTP or HTTPS (certificates by the system's authorities); redirects are answers."""

    def __init__(
        self,
        url: str,  # the witness's submission prefix
    ) -> None:
        self._url = url.rstrip("/") + _PATH
        self._client = HttpClient(read_s=_READ_S)

    def post(self, body: bytes, deadline: float) -> Answer:
        """Return the witness's answer; see `Wire`."""
        headers = {"content-type": "text/plain; charset=utf-8"}
        left = max(deadline - time.monotonic(), _SHORTEST_S)
        try:
            found = self._client.fetch(
                "POST",
                self._url,
                most=MAX_ANSWER_BYTES,
                within_s=left,
                body=body,
                headers=headers,
            )
        except HttpError as error:
            raise UnreachableError(
                "STO-L058", f"it cannot be reached: {error}"
            ) from error
        return Answer(found.status, found.body)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._client.close()


WITNESS_SKEW_S = 3600
"""A cosignature whose time is further off is of no use: volunteers would refuse it."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class CosignSettings:
    """How long witnesses are waited for."""

    timeout_s: float = 5.0  # for the quorum, s
    linger_s: float = 0.02  # for the others, once there is a quorum, s


@dataclass(frozen=True, slots=True)
class _Job:
    """One checkpoint to be cosigned."""

    note: bytes
    text: bytes
    checkpoint: Checkpoint
    prove: Prove
    deadline: float


class Cosigner:
    """`audit.publisher.Cosign` over the witnesses of a policy that have a URL."""

    def __init__(
        self,
        policy: LogPolicy,  # keys, addresses and quorum
        *,
        settings: CosignSettings | None = None,  # how long to wait
        # POSIX s, to see witnesses whose clock is wrong
        clock: Callable[[], float] = time.time,
        wire: Callable[[str], Wire] = HttpWire,  # makes the way to one witness
    ) -> None:
        self._policy = policy
        self._settings = settings or CosignSettings()
        self._askers = [
            _Asker(one, wire(one.url), clock) for one in policy.witnesses if one.url
        ]

    def __call__(
        self,
        note: bytes,  # signed by the log; trusted
        prove: Prove,  # size → consistency proof to the note's size
    ) -> bytes:
        """Return `note` with every cosignature that came in time.

        Raises:
            UnreachableError: ``STO-L058`` without a quorum; it says what each one said.
        """
        parsed = parse_note(note)
        end = time.monotonic() + self._settings.timeout_s
        job = _Job(note, parsed.text, parse_checkpoint(parsed.text), prove, end)
        asked = {one.witness.name: one.begin(job) for one in self._askers}
        found = self._gather(asked, end)
        if not has_quorum(self._policy, found):
            raise self._too_few(asked)
        mine = [found[one.name] for one in self._policy.witnesses if one.name in found]
        return render_note(Note(parsed.text, (*parsed.signatures, *mine)))

    def _gather(
        self, asked: dict[str, Future[NoteSignature]], end: float
    ) -> dict[str, NoteSignature]:
        """Wait for a quorum, and a moment for more; return what there is then."""

        def found() -> dict[str, NoteSignature]:
            done = {name: one for name, one in asked.items() if one.done()}
            return {name: one.result() for name, one in done.items() if _holds(one)}

        while not has_quorum(self._policy, found()):
            waiting = [one for one in asked.values() if not one.done()]
            left = end - time.monotonic()
            if not waiting or left <= 0:
                return found()
            wait(waiting, left, FIRST_COMPLETED)
        wait(asked.values(), self._settings.linger_s)
        return found()

    def close(self) -> None:
        """End the threads; one whose witness hangs ends at its deadline."""
        for asker in self._askers:
            asker.close()

    def _too_few(self, asked: dict[str, Future[NoteSignature]]) -> UnreachableError:
        silent = f"no answer in {self._settings.timeout_s:g} s"
        said = [
            f"{name}: {one.exception() if one.done() else silent}"
            for name, one in asked.items()
            if not _holds(one)
        ]
        return UnreachableError(
            "STO-L058",
            f"the witness quorum {self._policy.quorum!r} was not reached "
            f"({'; '.join(said) or 'no witness has a URL'})",
        )


def _holds(answer: Future[NoteSignature]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


class _Asker:
    """Asks one witness, always for the newest checkpoint, in a thread of its own."""

    def __init__(
        self, witness: Witness, wire: Wire, clock: Callable[[], float]
    ) -> None:
        self.witness = witness
        self._wire = wire
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, f"witness-{witness.name}")
        self._newest: Future[NoteSignature] | None = None
        self._size = 0

    def begin(self, job: _Job) -> Future[NoteSignature]:
        """Ask for a cosignature as soon as the witness has answered what it was asked."""
        # A newer checkpoint covers the older one, which nobody waits for any more.
        if self._newest is not None:
            self._newest.cancel()
        self._newest = self._thread.submit(self._ask, job)
        return self._newest

    def close(self) -> None:
        """Give up the connection once the witness has answered."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._thread.submit(self._wire.close)
        self._thread.shutdown(wait=False)

    def _ask(self, job: _Job) -> NoteSignature:
        """Return the witness's cosignature; a size that it tells is tried at once."""
        for _ in range(_TRIES):
            if self._size > job.checkpoint.size:
                size, self._size = self._size, 0  # it may have lied: ask anew next time
                raise TrustError(
                    "STO-L103",
                    f"it has cosigned {size} leaves, but this log has only "
                    f"{job.checkpoint.size}",
                )
            proof = tuple(job.prove(self._size))
            request = AddCheckpoint(self._size, proof, job.note)
            answer = self._wire.post(render_add_checkpoint(request), job.deadline)
            if answer.status == Status.OTHER_SIZE:
                # A lie here only makes the next proof useless: nothing else believes
                # it.
                self._size = parse_told_size(answer.body)
                continue
            cosignature = self._read(answer, job)
            self._size = job.checkpoint.size
            return cosignature
        raise UnreachableError("STO-L058", "it tells another size each time")

    def _read(self, answer: Answer, job: _Job) -> NoteSignature:
        """Return the cosignature in an answer, verified."""
        if answer.status == Status.INCONSISTENT:
            self._size = 0
            raise TrustError(
                "STO-L103", "it says that this log does not extend what it cosigned"
            )
        if answer.status != Status.COSIGNED:
            raise UnreachableError("STO-L058", f"it answered {answer.status}")
        key = self.witness.key
        for item in parse_cosignatures(answer.body):
            if (item.name, item.key_id) == (key.name, key.key_id):
                verify_signature(job.text, item, key)
                self._check_time(item.time)
                return item
        raise TrustError("STO-L010", f"no cosignature by {key.name} came back")

    def _check_time(self, cosigned: int) -> None:
        """Refuse a cosignature that volunteers would take for a proof of a wrong clock."""
        off = cosigned - int(self._clock())
        if abs(off) > WITNESS_SKEW_S:
            raise TrustError("STO-L108", f"its clock is {off} s off")
