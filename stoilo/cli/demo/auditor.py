"""The demo's outsiders: auditor, witness and monitor, who trust the log's policy alone.

Reads only what the log publishes (static tiles) and the log policy of the release.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stoilo.audit.format.note import Note, parse_note, render_note
from stoilo.audit.format.policy import LogPolicy, open_checkpoint
from stoilo.audit.format.proof import (
    LeafKind,
    ProvenLeaf,
    check_proof,
    parse_proof,
    render_proof,
)
from stoilo.audit.monitor.finding import Severity
from stoilo.audit.monitor.monitor import Monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read.reader import open_log
from stoilo.audit.read.source import open_source
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.admission import verify_admission
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import installed_release, load_trust
from stoilo.signer.release_pack import read_release
from stoilo.testing.deployment import Deployment
from stoilo.testing.witness import WitnessProcess, write_log_policy


def read_trust(keys: Path) -> TrustedRelease:
    """Return the release in `keys`, verified from its root file."""
    root = (keys / "root.json").read_bytes()
    installed = installed_release()
    return load_trust(read_release(keys), root, int(time.time()), installed=installed)


def read_log_policy(keys: Path) -> LogPolicy:
    """Return the log policy of the release in `keys`, verified from its root file."""
    return read_trust(keys).log_policy


def audit_task(proof: bytes, log: Path, policy: LogPolicy) -> ProvenLeaf:
    """Check one admission's proof against the published log.

    Raises:
        TrustError: the proof, its checkpoint or its leaf does not hold.
    """
    leaf = open_log(log, policy).entry(parse_proof(proof).index)
    if leaf.leaf is None or leaf.leaf.kind is not LeafKind.ADMISSION:
        raise TrustError("STO-L020", "the task's leaf is not an admission")
    return check_proof(proof, leaf.data, policy)


PATIENCE_S = 60.0
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class WatchedLog:
    """What a monitor knows about a log."""

    size: int  # leaves that it hashed and inspected
    admissions: int  # how many of them are admissions
    unexplained: int  # admissions that no record explains
    seen: int  # checkpoints that executors saw, all of them compared
    alarms: tuple[str, ...]  # what it has to complain about


def watch_log(data: Path, url: str) -> WatchedLog:
    """Follow the log at `url` until every admission is explained, or patience ends.

    Args:
        data: the server's directory; only the release's log policy is read there.
        url: the server's HTTP address.
    """
    policy = read_log_policy(data / "keys")
    end = time.monotonic() + PATIENCE_S
    with tempfile.TemporaryDirectory() as folder:
        state = MonitorState.open(Path(folder))
        try:
            monitor = Monitor(open_source(url), policy, state, clock=time.time)
            monitor.poll()
            while state.count_open() and time.monotonic() < end:
                time.sleep(PAUSE_S)
                monitor.poll()
            return _report(state)
        finally:
            state.close()


def _report(state: MonitorState) -> WatchedLog:
    return WatchedLog(
        size=state.memory.size,
        admissions=state.count_admissions(),
        unexplained=state.count_open(),
        seen=state.memory.seen,
        alarms=tuple(
            finding.message
            for _, finding in state.findings()
            if finding.severity is not Severity.NOTICE
        ),
    )


NAME = "witness.localhost/demo"


@dataclass(frozen=True, slots=True)
class IssuedAdmission:
    """What a workunit carries: the signed statement and the log's proof of it."""

    envelope: bytes
    proof: bytes


@contextmanager
def begin_witness(folder: Path, deployment: Deployment) -> Iterator[None]:
    """Run a witness of the deployment's log, and have the log's policy demand it."""
    with WitnessProcess(folder, NAME, [deployment.log_key()]) as witness:
        file = folder / "log-policy.txt"
        deployment.log_policy = write_log_policy(file, [witness], 1)
        yield


def read_admissions(data: Path, task_ids: Sequence[str]) -> list[IssuedAdmission]:
    """Return what was sent to volunteers of these tasks, from the server's database."""
    file = (data / "server.sqlite").absolute().as_uri()
    query = (
        "SELECT envelope, proof FROM attempt WHERE task_id = ? AND envelope NOT NULL"
    )
    with closing(sqlite3.connect(f"{file}?mode=ro", uri=True)) as connection:
        rows = [connection.execute(query, (one,)).fetchall() for one in task_ids]
    return [IssuedAdmission(*row) for found in rows for row in found]


def count_witnessed(
    admissions: Sequence[IssuedAdmission], trust: TrustedRelease
) -> int:
    """Return how many a volunteer's verifier accepts with a witness's cosignature."""
    return sum(
        verify_admission(one.envelope, one.proof, trust).proven.checkpoint_time
        is not None
        and bool(
            open_checkpoint(
                parse_proof(one.proof).checkpoint, trust.log_policy
            ).witnesses
        )
        for one in admissions
    )


def hide_witnesses(proof: bytes) -> bytes:
    """Return a log proof as a server would show it that its witnesses never saw."""
    parsed = parse_proof(proof)
    note = parse_note(parsed.checkpoint)
    alone = render_note(Note(note.text, note.signatures[:1]))
    return render_proof(replace(parsed, checkpoint=alone))


def explain_refusal(one: IssuedAdmission, trust: TrustedRelease) -> str:
    """Return the code with which a volunteer's verifier refuses, empty when it does not."""
    try:
        verify_admission(one.envelope, one.proof, trust)
    except TrustError as error:
        return error.code
    return ""
