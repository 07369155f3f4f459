"""Drill: the gate's key, and every other online key, is stolen."""

from __future__ import annotations

import time
from pathlib import Path

from stoilo.core.errors import StoiloError
from stoilo.core.statement import parse_statement, split_revocations
from stoilo.signer.process.client import SignerClient
from tests.drills.project import DrillHost, DrillProject
from tests.drills.report import Drill, Notes
from tests.drills.thief import DAY_S, Thief

__all__ = ["STOLEN_GATE_KEY"]

ALARMED = 4
WITHDRAWN = frozenset({"STO-A043", "STO-A047"})


def run(notes: Notes, folder: Path, defended: bool) -> None:
    """Steal, admit, notice, withdraw, and see what the thief still gets."""
    project = DrillProject(folder / "project", volunteers=2)
    with project.running():
        thief = Thief(project)
        old = project.revocations()
    root = (project.data / "keys" / "root.json").read_bytes()
    host, far = DrillHost(folder / "host", root), DrillHost(folder / "far", root)
    try:
        _attack(notes, project, thief, host, old, defended=defended)
        if defended:
            _aftermath(notes, thief, far, old)
    finally:
        host.close()
        far.close()


def _attack(
    notes: Notes,
    project: DrillProject,
    thief: Thief,
    host: DrillHost,
    old: bytes,
    *,
    defended: bool,
) -> None:
    """Admit forged work, off the log and in it, before and after the withdrawal."""
    _, borrowed = split_revocations(old)
    hidden = thief.packet(thief.statement("hidden"), borrowed, old)
    code = host.take(hidden)
    notes.expect("work that is not in the log is refused", code == "STO-L020", code)
    forged = [thief.statement(f"forged-{number}") for number in range(3)]
    proofs = thief.log(*forged)
    packets = [
        thief.packet(payload, proof, old)
        for payload, proof in zip(forged, proofs, strict=True)
    ]
    ran = host.take(packets[0]) == ""
    notes.expect("until it is withdrawn, logged work of the stolen key runs", ran)
    with project.running():
        notes.notice()
        place = project.data.parent / "monitor"
        status, found = project.watch(place, "--explain-within", "0")
        strange = found.count("unexplained")
        text = "a monitor raises the alarm: admissions that no record explains"
        alarmed = status == ALARMED and strange == len(forged)
        notes.expect(text, alarmed, f"exit {status}, {strange} of them")
        if defended:
            done = project.withdraw("--gate")
            notes.expect("`audit revoke --gate` puts a statement into force", done)
        new = project.revocations()
        release = project.release()
        code = _take_with(host, thief, forged[1], proofs[1], release, new)
        stopped = code in WITHDRAWN
        if notes.expect("a host refuses with the next workunit it gets", stopped, code):
            notes.contain()
        code = host.take(packets[2])
        text = "the host refuses also when the older statement is replayed"
        notes.expect(text, code in WITHDRAWN, code)
        if defended:
            code = _ask_signer(project, forged[2], proofs[2])
            text = "the signer admits nothing more in the stolen epochs"
            notes.expect(text, code == "STO-K024" or code in WITHDRAWN, code)
            value = project.compute()
            text = "honest work goes on in a fresh epoch"
            notes.expect(text, isinstance(value, float), f"{value:.6}")


def _aftermath(notes: Notes, thief: Thief, far: DrillHost, old: bytes) -> None:
    """See what a host gets that nobody has told of the withdrawal."""
    now = int(time.time())
    forged = thief.statement("far", admitted_at=now)
    (proof,) = thief.log(forged)
    packet = thief.packet(forged, proof, old)
    told_nothing = far.take(packet) == ""
    text = "a host that has heard nothing yet still runs it: this is the bound"
    notes.expect(text, told_nothing)
    far.late_s = 2 * DAY_S + 60
    code = far.take(packet)
    notes.expect("not beyond the end of its admission", code == "STO-A040", code)
    later = thief.statement("later", admitted_at=now + DAY_S + 7200)
    (proof,) = thief.log(later)
    far.late_s = DAY_S + 7200
    code = far.take(thief.packet(later, proof, old))
    text = "nor anything admitted a day after the last statement of before"
    notes.expect(text, code == "STO-A074", code)


def _take_with(
    host: DrillHost,
    thief: Thief,
    payload: bytes,
    proof: bytes,
    release: bytes,
    revocations: bytes,
) -> str:
    """Give the host forged work among the files that honest work carries now."""
    thief.release = release
    return host.take(thief.packet(payload, proof, revocations))


def _ask_signer(project: DrillProject, payload: bytes, proof: bytes) -> str:
    """Return the code with which the real signer answers the thief."""
    parse_statement(payload)
    with SignerClient(project.data / "run" / "signer.sock") as client:
        (answer,) = client.sign_admissions([(payload, proof)])
    return answer.code if isinstance(answer, StoiloError) else ""


STOLEN_GATE_KEY = Drill(
    name="stolen-gate-key",
    title="every online key is stolen; forged work is admitted and logged",
    bound=(
        "A host refuses with the first workunit that carries the new statement. One that "
        "gets none refuses whatever was admitted more than 24 hours after the last "
        "statement it has, and everything at the end of its admission (at most 14 days). "
        "Without witnesses a thief who keeps the keys can backdate on a private fork; "
        "then the end of the epoch (28 days) is the bound."
    ),
    defence="the withdrawal of the stolen epochs",
    run=run,
)
