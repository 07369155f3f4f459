import dataclasses
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import TargetFile, Targets

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier import trust as module
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    ReleaseFiles,
    load_trust,
    parse_release_pack,
)
from stoilo.signer import release_pack
from stoilo.signer.development.changes import revoke
from stoilo.signer.development.root import create_development_root
from stoilo.signer.key_files import read_private_key
from stoilo.signer.release_pack import marks_of, pack_release, read_release
from stoilo.signer.repository import (
    newest,
    refresh_online_metadata,
)
from tests.support.gate import DAY_S, INSTALLED, NOW, epoch_at

ORIGIN = "project.example/log"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    place = tmp_path / "release"
    create_development_root(place, ORIGIN, NOW, installed=INSTALLED)
    return place


def load(release: Path, now: int = NOW, cache: Path | None = None) -> str:
    """Return the origin, or the code of the refusal."""
    root = (release / "root.json").read_bytes()
    try:
        trusted = load_trust(
            read_release(release), root, now, installed=INSTALLED, cache=cache
        )
    except TrustError as error:
        return error.code
    return trusted.origin


def edit(files: ReleaseFiles, name: str, data: bytes | None) -> ReleaseFiles:
    kept = [row for row in files.files if row[0] != name]
    assert len(kept) == len(files.files) - 1
    return ReleaseFiles((*kept, *([] if data is None else [(name, data)])))


def test_release_is_trusted_up_to_its_root(release: Path) -> None:
    assert load(release) == ORIGIN


def test_cache_that_cannot_be_written_is_this_machines_trouble(
    tmp_path: Path, release: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InternalError, match="STO-X008"):
        load(release, cache=tmp_path / "file" / "cache")


def test_release_under_another_root_is_refused(tmp_path: Path, release: Path) -> None:
    other = tmp_path / "other"
    create_development_root(other, ORIGIN, NOW, installed=INSTALLED)
    (release / "root.json").write_bytes((other / "root.json").read_bytes())
    assert load(release) == "STO-K012"


def test_release_survives_packing(release: Path) -> None:
    files = read_release(release)
    assert parse_release_pack(pack_release(files)) == files


@pytest.mark.parametrize("data", [b"", b"[]", b'{"x":"AA=="}', b'{"metadata/a":"*"}'])
def test_damaged_pack_is_our_error(data: bytes) -> None:
    with pytest.raises(TrustError):
        parse_release_pack(data)


def test_pack_names_cannot_leave_the_release() -> None:
    with pytest.raises(TrustError, match="STO-K013"):
        parse_release_pack(b'{"metadata/../../etc/passwd":"AA=="}')


def test_every_flipped_file_is_refused(release: Path) -> None:
    files = read_release(release)
    root = (release / "root.json").read_bytes()
    for name, data in files.files:
        if name.endswith(".root.json"):
            continue  # the caller's own root is used, not this one
        for at in (len(data) // 3, len(data) // 2):
            damaged = data[:at] + bytes([data[at] ^ 2]) + data[at + 1 :]
            with pytest.raises(TrustError):
                load_trust(edit(files, name, damaged), root, NOW, installed=INSTALLED)


def test_every_missing_file_is_refused(release: Path) -> None:
    files = read_release(release)
    root = (release / "root.json").read_bytes()
    for name, _ in files.files:
        if name.endswith(".root.json"):
            continue
        with pytest.raises(TrustError, match="STO-K013"):
            load_trust(edit(files, name, None), root, NOW, installed=INSTALLED)


def test_expired_timestamp_is_refused_and_a_fresh_one_accepted(release: Path) -> None:
    later = NOW + 8 * DAY_S
    assert load(release, later) == "STO-K011"
    online = read_private_key(release / "online" / "online.pem")
    refresh_online_metadata(release, online, later)
    assert load(release, later) == ORIGIN


def test_timestamp_rollback_is_refused(tmp_path: Path, release: Path) -> None:
    cache = tmp_path / "cache"
    old = tmp_path / "old"
    shutil.copytree(release, old)
    online = read_private_key(release / "online" / "online.pem")
    refresh_online_metadata(release, online, NOW + 4 * DAY_S)
    assert load(release, NOW, cache) == ORIGIN
    assert load(old, NOW, cache) == "STO-K010"
    assert load(old, NOW) == ORIGIN  # without a memory nothing could be noticed


def test_withheld_revocation_is_noticed_as_rollback(
    tmp_path: Path, release: Path
) -> None:
    cache, old = tmp_path / "cache", tmp_path / "old"
    shutil.copytree(release, old)
    revoke(release, RevocationFile(epochs=(1,)), NOW)
    assert load(release, NOW, cache) == ORIGIN
    assert load(old, NOW, cache) == "STO-K010"


def test_development_root_is_refused_by_a_release_build(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = (release / "root.json").read_bytes()
    assert marks_of(root) == {DEVELOPMENT_MARK}
    with pytest.raises(TrustError, match="STO-K015"):
        load_trust(
            read_release(release), root, NOW, installed=INSTALLED, release_build=True
        )
    monkeypatch.setattr(module, "RELEASE_BUILD", True)
    with pytest.raises(TrustError, match="STO-K015"):
        load_trust(
            read_release(release), root, NOW, installed=INSTALLED, release_build=False
        )


def forge(release: Path, role: str, files: dict[str, bytes], key: PrivateKey) -> None:
    """Publish what a thief of `key` makes `role` say besides."""
    metadata = newest(release, role, Targets)
    metadata.signed.version += 1
    for name, data in files.items():
        info = TargetFile.from_data(name, data, ["sha256"])
        metadata.signed.targets[name] = info
        path = release / "targets" / name
        path.parent.mkdir(exist_ok=True)
        path.with_name(f"{info.hashes['sha256']}.{path.name}").write_bytes(data)
    metadata.signatures.clear()
    metadata.sign(CryptoSigner(key.key))
    version = metadata.signed.version
    metadata.to_file(str(release / "metadata" / f"{version}.{role}.json"))


def test_one_targets_key_is_not_enough(release: Path) -> None:
    """The thief of one offline key signs targets of his own."""
    key = read_private_key(release / "offline" / "targets-1.pem")
    forge(release, "targets", {"project.json": b"{}"}, key)
    online = read_private_key(release / "online" / "online.pem")
    with pytest.raises(TrustError, match="STO-K012"):
        refresh_online_metadata(release, online, NOW)


def test_thief_of_every_online_key_cannot_name_an_epoch(release: Path) -> None:
    """He holds online/*.pem and also the policy role, and signs what he can (I3)."""
    online = read_private_key(release / "online" / "online.pem")
    policy = read_private_key(release / "offline" / "policy.pem")
    forge(release, "policy", {"policy/accepted.json": b"{ }"}, policy)
    refresh_online_metadata(release, online, NOW)
    assert load(release) == ORIGIN
    forge(release, "policy", {"gate/1.json": b'{"epoch":1}'}, policy)
    refresh_online_metadata(release, online, NOW)
    assert load(release) == "STO-K013"


def test_level_that_the_release_does_not_certify_is_not_held(release: Path) -> None:
    pure, numeric = INSTALLED.levels
    older_numeric = msgspec.structs.replace(numeric, digest="00" * 32)
    older = dataclasses.replace(INSTALLED, levels=(pure, older_numeric))
    root = (release / "root.json").read_bytes()
    trusted = load_trust(read_release(release), root, NOW, installed=older)
    assert [level.name for level in trusted.levels] == ["pure"]


def test_host_that_was_away_for_two_years_reaches_the_newest_root(
    release: Path,
) -> None:
    later = NOW
    for _ in range(5):
        later += 150 * DAY_S
        create_development_root(release, ORIGIN, later, installed=INSTALLED)
    root = (release / "root.json").read_bytes()
    trusted = load_trust(read_release(release), root, later, installed=INSTALLED)
    assert trusted.root_version > 2
    assert epoch_at(trusted, later, 13 * DAY_S) is not None


def test_tasks_that_start_at_once_share_a_cache(tmp_path: Path, release: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: load(release, NOW, cache), range(16)))
    assert set(found) == {ORIGIN}


def test_release_can_be_read_while_it_is_published(release: Path) -> None:
    done = threading.Event()

    def publish() -> None:
        for number in range(1, 25):
            revoke(release, RevocationFile(min_epoch=number), NOW)
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    seen = set()
    while not done.is_set():
        seen.add(load(release))
    thread.join()
    assert seen == {ORIGIN}
    assert load(release) == ORIGIN


def test_only_the_newest_of_each_role_is_read(release: Path) -> None:
    for number in range(1, 9):
        revoke(release, RevocationFile(min_epoch=number), NOW)
    names = [name for name, _ in read_release(release).files]
    metadata = list((release / "metadata").iterdir())
    assert len(metadata) > sum(name.startswith("metadata/") for name in names)
    assert sum(name.endswith(".revocation.json") for name in names) == 1
    assert sum(name.endswith("denied.json") for name in names) == 1
    assert load(release) == ORIGIN


def test_release_whose_timestamp_is_still_to_come_is_read(release: Path) -> None:
    """A ceremony publishes targets first; its next step reads what is there."""
    whole = {name for name, _ in read_release(release).files}
    (release / "metadata" / "timestamp.json").unlink()
    rest = {name for name, _ in read_release(release).files}
    assert whole - rest == {"metadata/timestamp.json", "metadata/1.snapshot.json"}
    assert load(release) == "STO-K013"


@pytest.mark.parametrize("name", ["metadata/timestamp.json", "metadata/1.targets.json"])
def test_link_in_a_release_is_not_followed(release: Path, name: str) -> None:
    (release / name).rename(release / "elsewhere")
    (release / name).symlink_to(release / "elsewhere")
    assert load(release) == "STO-K013"


def test_release_that_never_stands_still_is_not_waited_for(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_pack._Walk, "follow", lambda _: False)
    assert load(release) == "STO-K013"
