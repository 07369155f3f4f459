"""Drill: a thief with the log's key shows one chosen volunteer another log."""

from __future__ import annotations

import time
from pathlib import Path

from stoilo.audit.format.merkle import consistency_proof, leaf_hash
from stoilo.audit.format.misbehaviour import check_misbehaviour, render_misbehaviour
from stoilo.audit.format.note import parse_vkey
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.witness.client import HttpWire
from stoilo.audit.witness.protocol import (
    AddCheckpoint,
    Answer,
    render_add_checkpoint,
)
from stoilo.core.errors import TrustError
from tests.drills.project import DrillHost, DrillProject, running_witness
from tests.drills.report import Drill, Notes
from tests.drills.thief import Thief, read_entries
from tests.support.memory_tree import MemoryTree

__all__ = ["SPLIT_VIEW"]

TIMEOUT_S = 10.0
REFUSALS = frozenset({400, 409, 422})


def run(notes: Notes, folder: Path, defended: bool) -> None:
    """Fork the log, with an independent witness, or without one."""
    project = DrillProject(folder / "project")
    if not defended:
        _fork(notes, project, folder, "")
        return
    with running_witness(folder, project.deployment.log_key()) as url:
        project.log_policy = folder / "policy.txt"
        project.deployment.log_policy = project.log_policy
        _fork(notes, project, folder, url)


def _fork(notes: Notes, project: DrillProject, folder: Path, url: str) -> None:
    """Make a private log, show it to a host, and compare it with the public one."""
    with project.running():
        thief = Thief(project)
        entries = read_entries(project.data / "audit" / "log")
        payload = thief.statement("chosen")
        private, proof = thief.fork(entries, payload)
        while project.checkpoint().size <= len(entries):
            project.withdraw("--digest", f"{project.checkpoint().size:064x}")
        public, everything = (
            project.note(),
            read_entries(project.data / "audit" / "log"),
        )
        revocations = project.revocations()
        release = project.release()
    thief.release = release
    host = DrillHost(
        folder / "host", (project.data / "keys" / "root.json").read_bytes()
    )
    try:
        notes.notice()
        code = host.take(thief.packet(payload, proof, revocations))
        text = "the chosen volunteer refuses: no witness has cosigned what he is shown"
        if notes.expect(text, code == "STO-L013", code or "it ran"):
            notes.contain()
    finally:
        host.close()
    if url:
        _ask_witness(notes, url, len(entries), private, entries)
    _compare(notes, thief, project, private, public, everything)


def _ask_witness(
    notes: Notes, url: str, size: int, private: bytes, entries: list[bytes]
) -> None:
    """Ask the real witness for the fork: as growth, then from the size that it tells."""
    tree = MemoryTree(leaf_hash(entry) for entry in entries)
    path = consistency_proof(size, size, tree.node) if size else []
    wire = HttpWire(url)
    try:
        first = _post(wire, AddCheckpoint(size, tuple(path), private))
        told = first.body.strip()
        old = int(told) if told.isdigit() else size
        second = _post(wire, AddCheckpoint(old, (), private))
    finally:
        wire.close()
    refused = {first.status, second.status} <= REFUSALS
    text = "the witness refuses to cosign the fork, from whatever size"
    notes.expect(text, refused, f"{first.status}, {second.status}")


def _post(wire: HttpWire, request: AddCheckpoint) -> Answer:
    return wire.post(render_add_checkpoint(request), time.monotonic() + TIMEOUT_S)


def _compare(
    notes: Notes,
    thief: Thief,
    project: DrillProject,
    private: bytes,
    public: bytes,
    everything: list[bytes],
) -> None:
    """Compare what the volunteer saw with what the public sees."""
    tree = MemoryTree(leaf_hash(entry) for entry in everything)
    policy = LogPolicy((parse_vkey(project.deployment.log_key()),))
    try:
        evidence = render_misbehaviour(private, public, tree.node)
        found = check_misbehaviour(evidence, policy)
    except TrustError as error:
        text = "both checkpoints together convict the log"
        notes.expect(text, holds=False, detail=str(error))
        return
    text = "both checkpoints together convict the log, for anybody who has its key"
    same = found.first.origin == thief.trust.origin
    notes.expect(text, same, f"{len(evidence)} bytes of evidence")


SPLIT_VIEW = Drill(
    name="split-view",
    title="a thief with the log's key shows a chosen volunteer another log",
    bound=(
        "With a quorum of independent witnesses: never, while fewer than the quorum are "
        "the thief's. Without witnesses the chosen volunteer is deceived until what he "
        "saw is compared with the public log; every result carries it, and a monitor that "
        "reads it holds the proof at its next poll."
    ),
    defence="the witness",
    run=run,
)
