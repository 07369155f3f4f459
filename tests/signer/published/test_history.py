"""Releases whose keys have changed, and metadata that is not what it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.published.history import History, read_history
from stoilo.signer.published.places import DirectoryPlace
from stoilo.signer.published.verify import verify_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.stage import DAY_S, ReleaseStage, make_offline_key


@pytest.fixture
def own(stage: ReleaseStage, template: Path) -> ReleaseStage:
    """The same project and people, whose changes no other test sees."""
    del template
    own = replace(stage, keys=dict(stage.keys))
    own.log, own.boinc = stage.log, stage.boinc
    return own


def holder(key: PrivateKey, name: str) -> KeyHolder:
    return KeyHolder(name, key.public)


def change_keys(own: ReleaseStage, release: Path, *changes: RoleChange) -> None:
    own.publish(release, own.next_ceremony(release, Changes(keys=changes)))


def replace_root_key(own: ReleaseStage, release: Path) -> None:
    """Let Dora have the root key that Cy had."""
    old, new = own.keys["root"][2], make_offline_key("root", "dora")
    own.keys["root"] = (*own.keys["root"][:2], new)
    change = RoleChange(
        "root",
        out=(holder(old.ed25519(), "cy"),),
        add=(holder(new.ed25519(), "dora"),),
    )
    change_keys(own, release, change)


def replace_online_key(own: ReleaseStage, release: Path) -> None:
    """Let the server have another key for snapshot and timestamp."""
    old, own.online = own.online, PrivateKey.generate()
    changes = (
        RoleChange(role, (holder(old, "server"),), (holder(own.online, "server"),))
        for role in ("snapshot", "timestamp")
    )
    change_keys(own, release, *changes)


def history(release: Path) -> History:
    place = DirectoryPlace(release)
    return read_history(place.read, place.names(), None)


def holds(own: ReleaseStage, release: Path, root: bytes | None = None) -> str:
    """Return an empty text, or the code of the refusal."""
    try:
        verify_release(
            DirectoryPlace(release), own.now, installed=own.installed, root=root
        )
    except StoiloError as error:
        return error.code
    return ""


def test_release_after_a_change_of_root_keys_holds(
    own: ReleaseStage, release: Path
) -> None:
    replace_root_key(own, release)
    assert len(history(release).roots) == 2
    for version in (1, 2):
        root = (release / "metadata" / f"{version}.root.json").read_bytes()
        assert holds(own, release, root) == ""


def test_release_whose_middle_root_is_missing_is_refused(
    own: ReleaseStage, release: Path
) -> None:
    replace_root_key(own, release)
    replace_online_key(own, release)
    assert holds(own, release) == ""
    (release / "metadata" / "2.root.json").unlink()
    assert holds(own, release)


def test_root_signed_by_the_new_keys_alone_is_refused(
    own: ReleaseStage, release: Path, tmp_path: Path
) -> None:
    thief = ReleaseStage(now=own.now)
    thief.publish(tmp_path / "thief", thief.first_ceremony())
    forged = (tmp_path / "thief" / "metadata" / "1.root.json").read_bytes()
    (release / "metadata" / "2.root.json").write_bytes(forged)
    assert holds(own, release)


def test_release_after_a_change_of_the_online_key_holds(
    own: ReleaseStage, release: Path
) -> None:
    replace_online_key(own, release)
    assert holds(own, release) == ""


def test_old_online_key_signs_nothing_new(own: ReleaseStage, release: Path) -> None:
    old = own.online
    replace_online_key(own, release)
    (release / "metadata" / "timestamp.json").unlink()
    refresh_online_metadata(release, old, own.now)
    assert holds(own, release) == "STO-K012"


def test_snapshot_far_ahead_of_the_release_is_refused(
    own: ReleaseStage, release: Path
) -> None:
    newest = max((release / "metadata").glob("*.snapshot.json"))
    (release / "metadata" / "1000000.snapshot.json").write_bytes(newest.read_bytes())
    assert holds(own, release) == "STO-K013"


def test_timestamp_renewed_each_day_leaves_a_release_that_holds(
    own: ReleaseStage, release: Path
) -> None:
    for _ in range(40):
        own.now += DAY_S
        refresh_online_metadata(release, own.online, own.now)
    assert holds(own, release) == ""
    assert len(list((release / "metadata").glob("*.snapshot.json"))) <= 3


def test_role_that_one_key_too_few_signed_is_refused(release: Path) -> None:
    path = release / "metadata" / "2.targets.json"
    head, mark, rest = path.read_bytes().partition(b'"signatures":[')
    _, comma, rest = rest.partition(b"},{")
    assert mark
    assert comma
    path.write_bytes(head + mark + b"{" + rest)
    with pytest.raises(TrustError, match=r"STO-K012|STO-K013"):
        history(release)
