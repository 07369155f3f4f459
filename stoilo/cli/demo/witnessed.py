"""The demo's witness: a process with a key of its own, and what its cosignature is worth."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stoilo.audit.format.note import Note, parse_note, render_note
from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.proof import parse_proof, render_proof
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.admission import verify_admission
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.testing.deployment import Deployment
from stoilo.testing.witness import WitnessProcess, write_log_policy

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
