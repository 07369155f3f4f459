"""Drills: the online key is stolen and used to jump ahead; one offline key is stolen."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.drills.release_scene import ReleaseScene
from tests.drills.release_theft import Forger
from tests.drills.report import Drill, Notes

__all__ = ["STOLEN_OFFLINE_KEY", "STOLEN_ONLINE_KEY"]

FAR: Final = 1_000_000
TOO_FEW: Final = "STO-K012"


def _online(notes: Notes, folder: Path, defended: bool) -> None:
    """Jump a million versions ahead, so that hosts refuse every honest release."""
    scene = ReleaseScene(folder)
    seen, away = scene.host("seen"), scene.host("away")
    code = seen.look(scene.directory)
    notes.expect("a host believes the release", code == "", code)
    thief, stolen = Forger(scene), [scene.online()]
    code = scene.host("other").look(thief.targets(stolen, stolen))
    notes.expect("the online key certifies no targets", code == TOO_FEW, code)
    code = seen.look(thief.jump(stolen, FAR))
    notes.expect("but a host believes versions far ahead", code == "", code)
    code = seen.look(scene.directory)
    text = "from then on it refuses the honest release, which seems to go back"
    notes.expect(text, code == "STO-K010", code)
    notes.notice()
    if defended:
        code = scene.replace_online()
        text = "a ceremony names the server's new key in the root"
        notes.expect(text, code == "", code)
    code = seen.look(scene.directory)
    text = "the host drops what it remembered, and believes the project again"
    if notes.expect(text, code == "", code):
        notes.contain()
    code = seen.look(thief.jump(stolen, 2 * FAR))
    notes.expect("the stolen key is worth nothing to it", code == TOO_FEW, code)
    code = away.look(scene.directory)
    notes.expect("a host that was away follows too", code == "", code)


def _offline(notes: Notes, folder: Path, defended: bool) -> None:
    """Sign with one admin's keys and every online key, in every way that might count."""
    scene = ReleaseScene(folder)
    host = scene.host("seen")
    code = host.look(scene.directory)
    notes.expect("a host believes the release", code == "", code)
    thief, online = Forger(scene), [scene.online()]
    names = ("ben",) if defended else ("ben", "ada")
    targets = [scene.key(name, "targets").signer() for name in names]
    root = [scene.key(name, "root").signer() for name in names]
    notes.notice()
    code = scene.host("second").look(thief.targets(targets, online))
    text = "targets signed by the stolen key and all online keys are refused"
    alone = notes.expect(text, code == TOO_FEW, code)
    borrowed = thief.targets([*targets, *root, *online], online)
    code = scene.host("third").look(borrowed)
    mixed = notes.expect("nor do keys of other roles help out", code == TOO_FEW, code)
    code = scene.host("fourth").look(thief.root(root))
    text = "a root signed by the stolen root key is refused"
    if notes.expect(text, code == "STO-K031", code) and alone and mixed:
        notes.contain()
    codes = [scene.replace(role, "ben") for role in ("targets", "root")]
    codes.append(host.look(scene.directory))
    text = "ceremonies replace both keys, and the host follows"
    notes.expect(text, set(codes) == {""}, " ".join(codes).strip())
    pair = [targets[0], scene.key("ada", "targets").signer()]
    code = host.look(thief.targets(pair, online))
    text = "even beside a second one the replaced key counts no more"
    notes.expect(text, code == TOO_FEW, code)


STOLEN_ONLINE_KEY = Drill(
    name="stolen-online-key",
    title="snapshot and timestamp keys are stolen; the thief jumps far ahead",
    bound=(
        "Until a host is shown the new root, the thief can withhold newer releases from it "
        "for 7 days beyond the last honest timestamp that he kept (21 for work admitted "
        "just before), or make it refuse all. He certifies nothing."
    ),
    defence="the new root with new online keys",
    run=_online,
)
STOLEN_OFFLINE_KEY = Drill(
    name="stolen-offline-key",
    title="one of three offline keys is stolen, of root and of targets",
    bound="None is needed: two must sign. Replace the key before a second one goes.",
    defence="the second laptop (two admins' keys lie on one)",
    run=_offline,
)
