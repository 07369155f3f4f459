"""Drills: root keys are replaced, one and two at once, and a lost one is missed by nobody."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from securesystemslib.signer import Signer

from stoilo.signer.ceremony.key_holders import RoleChange
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.roles import role_limits
from tests.drills.release_scene import ReleaseScene
from tests.drills.release_theft import Forger
from tests.drills.report import Drill, Notes

__all__ = ["LOST_KEY", "ROTATE_ONE_KEY", "ROTATE_THRESHOLD"]

NOT_OF_THE_LINE: Final = "STO-K031"
OFFLINE: Final = ("targets", "gate", "policy", "reviewers", "revocation")
HOUR_S: Final = 3600


def _rotate_one(notes: Notes, folder: Path, defended: bool) -> None:
    """Ada's laptop is stolen; her key is replaced before the thief finds a second one."""
    scene = ReleaseScene(folder)
    seen = scene.host("seen")
    code = seen.look(scene.directory)
    notes.expect("a host believes the release", code == "", code)
    ada = scene.key("ada", "root").signer()
    code = seen.look(Forger(scene).root([ada]))
    notes.expect("one stolen root key signs no root", code == NOT_OF_THE_LINE, code)
    notes.notice()
    if defended:
        code = scene.replace("root", "ada")
        notes.expect("a ceremony names Ada's new key in the root", code == "", code)
        code = seen.look(scene.directory)
        notes.expect("the host follows the root without her old key", code == "", code)
    _try_two(notes, scene, [ada, scene.key("ben", "root").signer()])
    code = seen.look(scene.directory)
    notes.expect("the honest release goes on", code == "", code)


def _try_two(notes: Notes, scene: ReleaseScene, stolen: Sequence[Signer]) -> None:
    """Let a thief with two keys, who were enough before, try every host."""
    forged = Forger(scene).root(stolen)
    codes = [scene.host(name).look(forged) for name in ("seen", "fresh")]
    text = "a root signed with the old keys is refused, on a new host too"
    if notes.expect(text, set(codes) == {NOT_OF_THE_LINE}, ", ".join(codes)):
        notes.contain()


def _rotate_threshold(notes: Notes, folder: Path, defended: bool) -> None:
    """Two laptops were lent out; both keys are replaced in one step."""
    scene = ReleaseScene(folder)
    seen = scene.host("seen")
    code = seen.look(scene.directory)
    notes.expect("a host believes the release", code == "", code)
    stolen = [scene.key(admin, "root").signer() for admin in ("ada", "ben")]
    notes.notice()
    if defended:
        code = scene.replace("root", "ada", "ben")
        text = "one ceremony replaces as many keys as must sign"
        notes.expect(text, code == "", code)
        code = seen.look(scene.directory)
        notes.expect("the host follows that root", code == "", code)
    _try_two(notes, scene, stolen)
    code = scene.replace("targets", "cleo") or seen.look(scene.directory)
    notes.expect("the new keys sign the next change", code == "", code)


def _lost(notes: Notes, folder: Path, defended: bool) -> None:
    """Cleo's keys are gone for good; the others replace them before anything ends."""
    scene = ReleaseScene(folder)
    if not defended:
        everybody = tuple(RoleChange(role, threshold=3) for role in ("root", "targets"))
        scene.hold(Changes(keys=everybody))
    seen = scene.host("seen")
    code = seen.look(scene.directory)
    notes.expect("a host believes the release", code == "", code)
    scene.lose("cleo")
    notes.notice()
    scene.now += role_limits("targets").lifetime_s - HOUR_S
    scene.refresh()
    code = scene.hold(Changes(renew=OFFLINE))
    text = "the two who are left renew what would end within the hour"
    notes.expect(text, code == "", code)
    codes = [scene.replace(role, "cleo") for role in ("root", "targets")]
    text = "and name Cleo's new keys in her old ones' place"
    notes.expect(text, set(codes) == {""}, " ".join(codes).strip())
    scene.now += 2 * HOUR_S
    codes = [seen.look(scene.directory), scene.host("new").look(scene.directory)]
    text = "hosts go on, those too that knew the first root only"
    if notes.expect(text, set(codes) == {""}, " ".join(codes).strip()):
        notes.contain()


ROTATE_ONE_KEY = Drill(
    name="rotate-one-key",
    title="one root key is stolen, and replaced before a second one is",
    bound=(
        "A host that is shown the new root refuses with the next workunit. One that is "
        "shown only what the thief serves believes two old keys, as it did before: a new "
        "verifier carries a higher floor of the root."
    ),
    defence="the new root",
    run=_rotate_one,
)
ROTATE_THRESHOLD = Drill(
    name="rotate-threshold",
    title="as many root keys as must sign are replaced at once",
    bound=(
        "A host that is shown the new root refuses the old keys for ever. One that never "
        "sees it believes them until it gets a verifier with a higher floor of the root."
    ),
    defence="the new root",
    run=_rotate_threshold,
)
LOST_KEY = Drill(
    name="lost-key",
    title="one admin's keys are lost; the others replace them",
    bound=(
        "There are 12 months for a lost root key and 6 months for a lost targets key: "
        "only then does anything end. Lose one more than may be missing and the project "
        "needs a new root, and every volunteer a new launcher."
    ),
    defence="the spare key (all 3 must sign, not 2)",
    run=_lost,
)
