"""The cases of the public TUF conformance suite that apply here, by name, on `load_trust`.

Written anew against our own entry; what the suite asks of a client's requests over HTTP
does not apply, nor do graphs of delegations (a role of ours passes nothing on) and odd role
names (ours are a list). In one point we are stricter, and say so: metadata has one encoding.
Names from github.com/theupdateframework/tuf-conformance.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Signed

from stoilo.core.errors import TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.trust import load_trust
from tests.support.gate import DAY_S, NOW
from tests.support.metadata import NOTHING_INSTALLED, ORIGIN, MetadataBench

TOP = ("targets", "snapshot", "timestamp")


@pytest.fixture
def bench() -> MetadataBench:
    return MetadataBench(NOW)


@pytest.fixture
def cache(tmp_path: Path, bench: MetadataBench) -> Path:
    """The memory of a host that has seen the first release."""
    folder = tmp_path / "cache"
    assert bench.load(folder) == ORIGIN
    return folder


def publish(bench: MetadataBench, role: str, **more: object) -> None:
    """Publish one role and what must follow it."""
    steps: dict[str, Callable[..., object]] = {
        "root": bench.publish_root,
        "targets": bench.publish_targets,
        "snapshot": bench.publish_snapshot,
        "timestamp": bench.publish_timestamp,
    }
    steps[role](**more)
    if role == "targets":
        bench.publish()
    if role == "snapshot":
        bench.publish_timestamp()


def held(cache: Path, role: str) -> int:
    """Return the version of a role in a host's memory, 0 without it."""
    file = cache / f"{role}.json"
    return json.loads(file.read_bytes())["signed"]["version"] if file.exists() else 0


def rotate(bench: MetadataBench, *roles: str) -> None:
    for role in roles:
        bench.keys[role] = bench.make_keys(1)
        bench.name_keys(bench.root, role, 1)
    bench.publish_root()


class TestBasic:
    def test_invalid_initial_root(self, bench: MetadataBench) -> None:
        root = json.loads(bench.trusted)
        del root["signed"]["version"]
        bench.trusted = json.dumps(root).encode()
        assert bench.load() == "STO-K013"

    def test_unsigned_initial_root(self, bench: MetadataBench) -> None:
        root = json.loads(bench.trusted)
        for signature in root["signatures"][1:]:
            signature["sig"] = "00" * 64
        bench.trusted = json.dumps(root).encode()
        assert bench.load() == "STO-K031"

    @pytest.mark.parametrize("role", ["root", *TOP])
    def test_unsigned_metadata(
        self, bench: MetadataBench, cache: Path, role: str
    ) -> None:
        before = held(cache, role)
        publish(bench, role, signers=())
        assert bench.load(cache) == ("STO-K031" if role == "root" else "STO-K012")
        assert held(cache, role) == before

    @pytest.mark.parametrize("role", ["root", "targets", "snapshot"])
    def test_url_and_metadata_version_mismatch(
        self, bench: MetadataBench, cache: Path, role: str
    ) -> None:
        publish(bench, role)
        name = f"metadata/2.{role}.json"
        signed = bench.root if role == "root" else bench.snapshot
        signed = bench.roles["targets"] if role == "targets" else signed
        signed.version = 3
        bench.files[name] = bench.sign(signed, bench.keys[role])
        assert bench.load(cache) == ("STO-K031" if role == "root" else "STO-K019")

    def test_timestamp_content_changes(self, bench: MetadataBench, cache: Path) -> None:
        bench.timestamp.version = 0
        bench.timestamp.snapshot_meta.version = 100
        bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN
        kept = json.loads((cache / "timestamp.json").read_bytes())
        assert kept["signed"]["meta"]["snapshot.json"]["version"] == 1

    def test_basic_metadata_hash_support(self, bench: MetadataBench) -> None:
        assert bench.snapshot.meta["targets.json"].hashes
        assert bench.load() == ORIGIN

    def test_targets_hash_mismatch(self, bench: MetadataBench, cache: Path) -> None:
        bench.publish_targets()
        bench.snapshot.meta["targets.json"].hashes = {"sha256": "0" * 64}
        bench.publish()
        assert bench.load(cache) == "STO-K019"
        assert (held(cache, "snapshot"), held(cache, "targets")) == (2, 1)

    def test_snapshot_hash_mismatch(self, bench: MetadataBench, cache: Path) -> None:
        bench.publish_snapshot()
        bench.timestamp.snapshot_meta.hashes = {"sha256": "0" * 64}
        bench.publish_timestamp()
        assert bench.load(cache) == "STO-K019"
        assert (held(cache, "timestamp"), held(cache, "snapshot")) == (2, 1)

    def test_metadata_bytes_match(self, bench: MetadataBench, cache: Path) -> None:
        """What is stored is what came; another encoding of it never comes in (stricter)."""
        data = bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN
        assert (cache / "timestamp.json").read_bytes() == data
        bench.files["metadata/timestamp.json"] = bench.publish_timestamp() + b" "
        assert bench.load(cache) == "STO-K013"

    def test_custom_fields(self, bench: MetadataBench, cache: Path) -> None:
        bench.root.unrecognized_fields["custom-field"] = "value"
        bench.root.roles["root"].unrecognized_fields["another-field"] = "value"
        key = bench.root.keys[bench.root.roles["targets"].keyids[0]]
        key.unrecognized_fields["extra-field"] = {"a": 1, "b": 2}
        bench.publish_root()
        assert bench.load(cache) == ORIGIN

    def test_deprecated_keyid_hash_algorithms(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        key = bench.root.keys[bench.root.roles["snapshot"].keyids[0]]
        key.unrecognized_fields["keyid_hash_algorithms"] = "md5"
        bench.publish_root()
        bench.publish()
        assert bench.load(cache) == ORIGIN

    @pytest.mark.parametrize("name", ["2.snapshot", "2.targets", "timestamp"])
    def test_metadata_404(self, bench: MetadataBench, cache: Path, name: str) -> None:
        """The suite's snapshot_404, targets_404 and timestamp_404."""
        publish(bench, "targets")
        del bench.files[f"metadata/{name}.json"]
        assert bench.load(cache) == "STO-K013"

    def test_incorrect_metadata_type(self, bench: MetadataBench, cache: Path) -> None:
        keys = bench.keys["timestamp"]
        bench.files["metadata/timestamp.json"] = bench.sign(bench.snapshot, keys)
        assert bench.load(cache) == "STO-K013"


class TestExpiration:
    def test_root_expired(self, bench: MetadataBench, cache: Path) -> None:
        bench.now += 400 * DAY_S
        for name in bench.roles:
            bench.publish_targets(name)
        bench.publish()
        assert bench.load(cache) == "STO-K011"

    @pytest.mark.parametrize(
        ("role", "code"),
        [("timestamp", "STO-K011"), ("snapshot", "STO-K011"), ("targets", "STO-K011")],
    )
    def test_role_expired(
        self, bench: MetadataBench, cache: Path, role: str, code: str
    ) -> None:
        """The suite's timestamp_expired, snapshot_expired and targets_expired."""

        def end(signed: Signed) -> None:
            signed.expires -= timedelta(days=400)

        publish(bench, role, change=end)
        assert bench.load(cache) == code

    def test_expired_local_root(self, bench: MetadataBench, cache: Path) -> None:
        bench.now += 400 * DAY_S
        bench.publish_root()
        for name in bench.roles:
            bench.publish_targets(name)
        bench.publish()
        assert bench.load(cache) == ORIGIN

    def test_expired_local_timestamp(self, bench: MetadataBench, cache: Path) -> None:
        bench.now += 8 * DAY_S
        assert bench.load(cache) == "STO-K011"
        bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN


class TestFileDownload:
    def test_client_downloads_expected_file(self, bench: MetadataBench) -> None:
        bench.put("executor/floors.json", b'{"verifier":7}')
        publish(bench, "targets")
        release = load_trust(
            bench.release(), bench.trusted, NOW, installed=NOTHING_INSTALLED
        )
        assert release.floors.verifier == 7

    def test_repository_substitutes_target_file(self, bench: MetadataBench) -> None:
        names = [name for name in bench.files if name.startswith("targets/policy/")]
        bench.put("policy/other.json", b'{"digests":[]}')
        bench.publish_targets("policy")
        bench.publish()
        other = next(name for name in bench.files if name.endswith(".other.json"))
        bench.files[names[0]] = bench.files[other]
        assert bench.load() == "STO-K013"  # it is also longer
        bench.files[names[0]] = b"[]"
        assert bench.load() == "STO-K019"

    def test_multiple_changes_to_target(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        for serial in (2, 3, 4):
            bench.put("executor/floors.json", b'{"verifier":%d}' % serial)
            publish(bench, "targets")
            assert bench.load(cache) == ORIGIN

    @pytest.mark.parametrize("algorithm", ["sha512", "blake2b-256"])
    def test_download_with_hash_algorithms(
        self, bench: MetadataBench, algorithm: str
    ) -> None:
        self._hash_with(bench, algorithm)
        assert bench.load() == ORIGIN

    def test_download_with_unknown_hash_algorithm(self, bench: MetadataBench) -> None:
        self._hash_with(bench, "sha512", claimed="unknown-hash")
        assert bench.load() == "STO-K019"

    @staticmethod
    def _hash_with(bench: MetadataBench, algorithm: str, claimed: str = "") -> None:
        data = b'{"verifier":3}'
        bench.put("executor/floors.json", data)
        info = bench.roles["targets"].targets["executor/floors.json"]
        own = type(info).from_data("executor/floors.json", data, [algorithm])
        digest = next(iter(own.hashes.values()))
        own.hashes = {claimed or algorithm: digest}
        bench.roles["targets"].targets["executor/floors.json"] = own
        bench.files[f"targets/executor/{digest}.floors.json"] = data
        publish(bench, "targets")


class TestKeys:
    def test_snapshot_does_not_meet_threshold(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        bench.keys["snapshot"] += bench.make_keys(1)
        bench.name_keys(bench.root, "snapshot", 2)
        bench.publish_root()
        bench.publish_snapshot(signers=bench.keys["snapshot"][:1])
        bench.publish_timestamp()
        assert bench.load(cache) == "STO-K012"

    def test_snapshot_has_too_few_keys(self, bench: MetadataBench, cache: Path) -> None:
        bench.root.roles["snapshot"].threshold = 2
        bench.publish_root()
        bench.publish()
        assert bench.load(cache) == "STO-K012"

    def test_duplicate_keys(self, bench: MetadataBench, cache: Path) -> None:
        role = bench.root.roles["snapshot"]
        role.keyids, role.threshold = role.keyids * 2, 2
        bench.publish_root()
        bench.publish()
        assert bench.load(cache) == "STO-K013"

    def test_duplicate_sig_keyids(self, bench: MetadataBench, cache: Path) -> None:
        document = json.loads(bench.publish_timestamp())
        document["signatures"] *= 2
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        bench.files["metadata/timestamp.json"] = text.encode()
        assert bench.load(cache) == "STO-K013"

    def test_invalid_sig_in_valid_metadata(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        """A surplus signature that does not verify takes nothing away."""
        document = json.loads(bench.publish_timestamp())
        document["signatures"].append({"keyid": "deadbeef", "sig": "00" * 64})
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        bench.files["metadata/timestamp.json"] = text.encode()
        assert bench.load(cache) == ORIGIN


class TestRollback:
    def test_new_timestamp_version_rollback(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        first = bench.files["metadata/timestamp.json"]
        bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN
        bench.files["metadata/timestamp.json"] = first
        assert bench.load(cache) == "STO-K010"

    def test_snapshot_rollback(self, bench: MetadataBench, cache: Path) -> None:
        bench.publish()
        assert bench.load(cache) == ORIGIN
        bench.snapshot.version = 0
        bench.publish()
        assert bench.load(cache) == "STO-K010"
        assert (held(cache, "timestamp"), held(cache, "snapshot")) == (2, 2)

    def test_targets_role_removal(self, bench: MetadataBench, cache: Path) -> None:
        del bench.snapshot.meta["policy.json"]
        bench.publish()
        assert bench.load(cache) == "STO-K010"
        assert held(cache, "snapshot") == 1

    def test_targets_rollback(self, bench: MetadataBench, cache: Path) -> None:
        publish(bench, "targets")
        assert bench.load(cache) == ORIGIN
        bench.roles["targets"].version = 0
        publish(bench, "targets")
        assert bench.load(cache) == "STO-K010"
        assert held(cache, "targets") == 2

    def test_targets_fast_forward_recovery(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        bench.roles["targets"].version = 99
        publish(bench, "targets")
        assert bench.load(cache) == ORIGIN
        rotate(bench, "snapshot")
        bench.roles["targets"].version = 0
        publish(bench, "targets")
        assert bench.load(cache) == ORIGIN
        assert held(cache, "targets") == 1

    def test_new_snapshot_fast_forward_recovery(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        bench.snapshot.version = 99
        bench.publish()
        assert bench.load(cache) == ORIGIN
        bench.snapshot.version = 0
        bench.publish()
        assert bench.load(cache) == "STO-K010"  # control: not without new keys
        rotate(bench, "snapshot", "timestamp")
        bench.snapshot.version = 0
        bench.publish()
        assert bench.load(cache) == ORIGIN
        assert held(cache, "snapshot") == 1

    def test_new_timestamp_fast_forward_recovery(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        bench.timestamp.version = 99
        bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN
        bench.timestamp.version = 0
        bench.publish_timestamp()
        assert bench.load(cache) == "STO-K010"  # control: not without a new key
        rotate(bench, "timestamp")
        bench.timestamp.version = 0
        bench.publish_timestamp()
        assert bench.load(cache) == ORIGIN
        assert held(cache, "timestamp") == 1


class TestDelegation:
    def test_delegation_not_in_snapshot(self, bench: MetadataBench) -> None:
        del bench.snapshot.meta["policy.json"]
        bench.publish()
        assert bench.load() == "STO-K010"

    def test_cached_role_is_verified_against_current_delegator(
        self, bench: MetadataBench, cache: Path
    ) -> None:
        """A role in memory counts for nothing once targets name another key for it."""
        (key,) = bench.make_keys(1)
        public = CryptoSigner(key.key).public_key
        delegations = bench.roles["targets"].delegations
        assert delegations is not None
        assert delegations.roles is not None
        delegations.keys[public.keyid] = public
        delegations.roles["policy"].keyids = [public.keyid]
        publish(bench, "targets")
        assert bench.load(cache) == "STO-K012"
        bench.publish_targets("policy", signers=(key,))
        bench.publish()
        assert bench.load(cache) == ORIGIN


Version = tuple[str, int, str]
"""Keys of a role by letter, its threshold, and who signs."""

ROOT_ROTATIONS: dict[str, tuple[Version, ...]] = {
    "1-of-1-key-rotation": (("b", 1, "b"), ("c", 1, "cb"), ("c", 1, "c")),
    "1-of-1-key-rotation-unused-signatures": (
        ("b", 1, "dbe"),
        ("c", 1, "dcbe"),
        ("c", 1, "dce"),
    ),
    "3-of-5-sign-with-different-keycombos": (
        ("abcde", 3, "ace"),
        ("abcde", 3, "aeb"),
        ("abcde", 3, "abd"),
    ),
    "3-of-5-one-key-rotated": (("abcde", 3, "ace"), ("abdef", 3, "aeb")),
    "3-of-5-one-key-rotated-with-intermediate-step": (
        ("abcde", 3, "ace"),
        ("abdef", 3, "acef"),
        ("abdef", 3, "aef"),
    ),
    "3-of-5-all-keys-rotated-with-intermediate-step": (
        ("abcde", 3, "ace"),
        ("fghij", 3, "acefgh"),
        ("fghij", 3, "fgh"),
    ),
    "1-of-3-threshold-increase-to-2-of-3": (("bcd", 1, "b"), ("bcd", 2, "bc")),
    "2-of-3-threshold-decrease-to-1-of-3": (
        ("bcd", 2, "bc"),
        ("bcd", 1, "bc"),
        ("bcd", 1, "b"),
    ),
    "1-of-2-threshold-increase-to-2-of-2": (("b", 1, "b"), ("bc", 2, "bc")),
}
ROOT_FAILURES: dict[str, tuple[Version, ...]] = {
    "1-of-1-key-rotation-fail-not-signed-with-old-key": (
        ("b", 1, "b"),
        ("c", 1, "cde"),
    ),
    "1-of-1-key-rotation-fail-not-signed-with-new-key": (
        ("b", 1, "b"),
        ("c", 1, "bde"),
    ),
    "3-of-5-one-key-rotate-fails-not-signed-with-3-new-keys": (
        ("abcde", 3, "ace"),
        ("abdef", 3, "ace"),
    ),
    "3-of-5-one-key-rotate-fails-not-signed-with-3-old-keys": (
        ("abcde", 3, "ace"),
        ("abdef", 3, "aef"),
    ),
    "1-of-3-threshold-bump-to-2-of-3-fails-new-threshold-not-reached": (
        ("bcd", 1, "b"),
        ("bcd", 2, "c"),
    ),
    "2-of-3-threshold-decr-to-1-of-3-fails-old-threshold-not-reached": (
        ("bcd", 2, "bc"),
        ("bcd", 1, "b"),
    ),
}
ROTATIONS: dict[str, tuple[Version, str]] = {
    "1-of-1-key-rotation": (("c", 1, "c"), ORIGIN),
    "1-of-1-key-rotation-unused-signatures": (("b", 1, "dbe"), ORIGIN),
    "1-of-1-key-rotation-fail-not-signed-with-new-key": (("c", 1, "bde"), "STO-K012"),
    "3-of-5-one-key-signature-wrong-not-signed-with-3-expected-keys": (
        ("abdef", 3, "ace"),
        "STO-K012",
    ),
    "2-of-5-one-key-signature-missing-threshold-not-reached": (
        ("abdef", 3, "ae"),
        "STO-K012",
    ),
    "3-of-5-sign-first-combo": (("abcde", 3, "ace"), ORIGIN),
    "3-of-5-sign-second-combo": (("abcde", 3, "aeb"), ORIGIN),
    "3-of-5-sign-third-combo": (("abcde", 3, "abd"), ORIGIN),
    "3-of-5-sign-fourth-combo": (("abcde", 3, "bcd"), ORIGIN),
    "3-of-5-sign-fifth-combo": (("abcde", 3, "cde"), ORIGIN),
}


def lettered_keys() -> dict[str, PrivateKey]:
    return dict(zip("abcdefghij", MetadataBench.make_keys(10), strict=True))


class TestKeyRotations:
    @pytest.mark.parametrize("name", [*ROOT_ROTATIONS, *ROOT_FAILURES])
    def test_root_rotation(self, tmp_path: Path, name: str) -> None:
        versions = (ROOT_ROTATIONS | ROOT_FAILURES)[name]
        bench, keys = MetadataBench(NOW), lettered_keys()
        del bench.files["metadata/1.root.json"]
        bench.root.version = 0
        for named, threshold, signers in versions:
            bench.keys["root"] = tuple(keys[one] for one in named)
            bench.name_keys(bench.root, "root", threshold)
            bench.publish_root(signers=[keys[one] for one in signers])
        bench.trusted = bench.files["metadata/1.root.json"]
        expected = ORIGIN if name in ROOT_ROTATIONS else "STO-K031"
        assert bench.load(tmp_path / "cache") == expected
        reached = len(versions) - (expected != ORIGIN)
        assert held(tmp_path / "cache", "root") == reached

    @pytest.mark.parametrize("role", TOP)
    @pytest.mark.parametrize("name", ROTATIONS)
    def test_non_root_rotations(self, tmp_path: Path, name: str, role: str) -> None:
        (named, threshold, signers), expected = ROTATIONS[name]
        bench, keys = MetadataBench(NOW), lettered_keys()
        assert bench.load(tmp_path / "cache") == ORIGIN
        bench.keys[role] = tuple(keys[one] for one in named)
        bench.name_keys(bench.root, role, threshold)
        bench.publish_root()
        publish(bench, role, signers=[keys[one] for one in signers])
        assert bench.load(tmp_path / "cache") == expected


def test_trust_in_a_root_that_is_none_is_our_error() -> None:
    for root in (b"", b"{}", b"[" * 5000, b"\xff"):
        with pytest.raises(TrustError, match="STO-K013"):
            load_trust(
                MetadataBench(NOW).release(), root, NOW, installed=NOTHING_INSTALLED
            )
