"""Drill: the log is lost for good."""

from __future__ import annotations

import shutil
from pathlib import Path

from stoilo.audit.format.merkle import EMPTY_ROOT, Checkpoint, render_checkpoint
from stoilo.audit.format.proof import check_proof
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.signatures import parse_envelope
from stoilo.core.statement import parse_revocation, split_revocations
from stoilo.executor.verifier.statements import revocation_leaf
from stoilo.signer.process.client import SignerClient, SignerProcess
from tests.drills.project import DrillProject
from tests.drills.report import Drill, Notes
from tests.drills.thief import Thief

__all__ = ["LOST_LOG"]

LOG_PARTS = ("audit", "audit-head")


def run(notes: Notes, folder: Path, defended: bool) -> None:
    """Delete the log; see that no other can take its name, and that old proofs hold."""
    project = DrillProject(folder / "project")
    with project.running():
        project.withdraw("--digest", "a" * 64)
        last, carried = project.note(), project.revocations()
        size = project.checkpoint().size
        policy = Thief(project).trust.log_policy
    for part in LOG_PARTS:
        shutil.rmtree(project.data / part)
    if not defended:
        _forget(project)
    notes.notice()
    code = project.try_start()
    text = f"a server whose {size} leaves are gone does not start"
    refused = notes.expect(text, code.startswith("STO-L0"), code or "it started")
    (project.data / "server.sqlite").unlink(missing_ok=True)
    code = project.try_start()
    text = "nor when its database is gone too: the signer remembers the size"
    refused = (
        notes.expect(text, code.startswith("STO-L0"), code or "it started") and refused
    )
    code = _sign_smaller(project)
    text = "no shorter log of the same name is signed"
    signed_less = code != "STO-K026"
    if notes.expect(text, not signed_less, code or "it was signed") and refused:
        notes.contain()
    envelope, proof = split_revocations(carried)
    payload = parse_envelope(envelope).payload
    proven = check_proof(proof, revocation_leaf(payload), policy)
    text = "what was handed out keeps its proof, without the log"
    notes.expect(text, proven.size <= size, f"leaf {proven.index} of {proven.size}")
    if defended:
        _succeed(notes, folder, last)


def _forget(project: DrillProject) -> None:
    """Take the defence away: nobody remembers how long the log was."""
    shutil.rmtree(project.data / "keys" / "state")
    shutil.rmtree(project.data / "keys")
    (project.data / "server.sqlite").unlink()


def _sign_smaller(project: DrillProject) -> str:
    """Ask the real signer for a checkpoint of a log that has lost its leaves."""
    socket = project.data / "run" / "drill.sock"
    keys = project.data / "keys"
    try:
        with SignerProcess(keys, socket), SignerClient(socket) as client:
            origin = client.ping().log_vkey.partition("+")[0]
            body = render_checkpoint(Checkpoint(origin, 0, EMPTY_ROOT))
            client.sign_checkpoint(body)
    except StoiloError as error:
        return error.code
    return ""


def _succeed(notes: Notes, folder: Path, last: bytes) -> None:
    """Begin a log of a new name, whose first acts name the old one's last head."""
    head = content_digest(last)
    heir = DrillProject(folder / "heir")
    heir.data.mkdir(mode=0o700)
    (heir.data / "stoilo.toml").write_text('origin = "drill.example/second"\n')
    (heir.data / "last-checkpoint-of-the-lost-log").write_bytes(last)
    with heir.running():
        named = heir.withdraw("--digest", head)
        origin = heir.checkpoint().origin
    text = "a log of a new name begins, and names the lost one's last checkpoint"
    notes.expect(text, named and origin == "drill.example/second", origin)
    found = parse_revocation(
        parse_envelope(split_revocations(heir.revocations())[0]).payload
    )
    notes.expect("so nobody can add to the lost one unseen", head in found.digests)


LOST_LOG = Drill(
    name="lost-log",
    title="both databases and the published files of the log are lost",
    bound=(
        "Nothing is issued from the moment the server starts next; a running one stops at "
        "its next append. Work that is out keeps its proofs to the end of its admission. "
        "A new log needs a new name and a new offline release; volunteers attach anew."
    ),
    defence="the signer's and the server's memory of the log's size",
    run=run,
)
