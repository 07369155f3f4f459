"""A table of attacks on a release, each refused with its own code, each with a control.

The thief holds the keys that his row needs; the host has seen the honest release before and
remembers it. The control does the nearest honest thing, and the host goes along.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import DelegatedRole, Delegations, MetaFile, TargetFile

from stoilo.core.codebook import find_entry
from stoilo.executor.verifier.trust import DEVELOPMENT_MARK, REHEARSAL_MARK
from tests.support.gate import DAY_S, NOW
from tests.support.metadata import ORIGIN, MetadataBench

Step = Callable[[MetadataBench], object]


@dataclass(frozen=True)
class Attack:
    """What is done, what it must end with, and the nearest thing that is honest."""

    code: str
    mount: Step
    honest: Step
    release_build: bool = False


def steps(*all_of_them: Step) -> Step:
    def run(bench: MetadataBench) -> None:
        for step in all_of_them:
            step(bench)

    return run


def renewed(bench: MetadataBench) -> None:
    bench.publish_targets()
    bench.publish()


def later(days: int) -> Step:
    def wait(bench: MetadataBench) -> None:
        bench.now += days * DAY_S

    return wait


def old_timestamp(bench: MetadataBench) -> None:
    """The server's files of yesterday, after the host has seen today's."""
    bench.timestamp.version -= 2
    bench.publish_timestamp()


def older_snapshot(bench: MetadataBench) -> None:
    first = bench.files["metadata/1.snapshot.json"]
    bench.snapshot.version = 1
    bench.timestamp.snapshot_meta = MetaFile(1, len(first))
    bench.publish_timestamp()


def older_role(name: str) -> Step:
    def roll_back(bench: MetadataBench) -> None:
        bench.snapshot.meta[f"{name}.json"] = MetaFile(1)
        bench.publish()

    return roll_back


def lost_role(bench: MetadataBench) -> None:
    del bench.snapshot.meta["revocation.json"]
    bench.publish()


def new_root(bench: MetadataBench) -> None:
    bench.publish_root()


def replace_root_keys(bench: MetadataBench) -> tuple[object, ...]:
    old = bench.keys["root"]
    bench.keys["root"] = bench.make_keys(3)
    bench.name_keys(bench.root, "root", 2)
    return old


def root_of_strangers(bench: MetadataBench) -> None:
    replace_root_keys(bench)
    bench.publish_root(signers=bench.keys["root"])


def root_of_one_old_key(bench: MetadataBench) -> None:
    old = bench.keys["root"]
    replace_root_keys(bench)
    bench.publish_root(signers=(old[0], *bench.keys["root"]))


def root_without_its_own_keys(bench: MetadataBench) -> None:
    old = bench.keys["root"]
    replace_root_keys(bench)
    bench.publish_root(signers=old)


def rotated_root(bench: MetadataBench) -> None:
    replace_root_keys(bench)
    bench.publish_root()


def skipped_root(bench: MetadataBench) -> None:
    bench.publish_root(lambda root: setattr(root, "version", 3), name="2.root.json")


def repeated_root(bench: MetadataBench) -> None:
    bench.publish_root(lambda root: setattr(root, "version", 1), name="2.root.json")


def gap_of_roots(bench: MetadataBench) -> None:
    steps(new_root, new_root)(bench)
    del bench.files["metadata/2.root.json"]


def many_roots(count: int) -> Step:
    return steps(*[new_root] * count)


def forget_timestamp_keys(bench: MetadataBench) -> None:
    """Serve what was signed before the root replaced the key, to a host that knows."""
    bench.keys["timestamp"] = bench.make_keys(1)
    bench.name_keys(bench.root, "timestamp", 1)
    bench.publish_root()
    bench.publish_timestamp()


def hide_new_root(bench: MetadataBench) -> None:
    del bench.files["metadata/2.root.json"]
    bench.files["metadata/timestamp.json"] = bench.files.pop("first")


def keep_first_timestamp(bench: MetadataBench) -> None:
    bench.files["first"] = bench.files["metadata/timestamp.json"]


def swapped(name: str, other: str) -> Step:
    def swap(bench: MetadataBench) -> None:
        bench.files[f"metadata/{name}"] = bench.files[f"metadata/{other}"]

    return swap


def two_targets(bench: MetadataBench) -> None:
    """Two honest releases: the newer one's snapshot, the older one's targets."""
    renewed(bench)
    bench.files["metadata/3.targets.json"] = bench.files["metadata/2.targets.json"]


def endless(name: str) -> Step:
    def stretch(bench: MetadataBench) -> None:
        bench.files[name] += b" " * 600_000

    return stretch


def target(bench: MetadataBench, name: str) -> str:
    return next(key for key in bench.files if key.endswith(f".{name}"))


def longer_target(bench: MetadataBench) -> None:
    bench.files[target(bench, "project.json")] += b" "


def changed_target(bench: MetadataBench) -> None:
    name = target(bench, "project.json")
    bench.files[name] = bench.files[name].replace(b"project.ex", b"projekt.ex")


def one_key(name: str) -> Step:
    """The role's first key signs alone, where two must."""
    return lambda bench: (
        bench.publish_targets(name, signers=bench.keys["targets"][:1]),
        bench.publish(),
    )


def two_keys(bench: MetadataBench) -> None:
    bench.publish_targets(signers=bench.keys["targets"][1:])
    bench.publish()


def signature_twice(bench: MetadataBench) -> None:
    """One key's signature is written down twice, under the same key id."""
    data = json.loads(bench.publish_targets(signers=bench.keys["targets"][:1]))
    data["signatures"] *= 2
    store(bench, "targets", data)


def key_twice(bench: MetadataBench) -> None:
    """The root names one key of targets under two ids, and that key signs twice."""
    first = bench.root.roles["targets"].keyids[0]
    key = bench.root.keys[first]
    other = type(key)("ab" * 32, key.keytype, key.scheme, dict(key.keyval))
    bench.root.add_key(other, "targets")
    bench.publish_root()


def delegated_key_twice(bench: MetadataBench) -> None:
    delegations = bench.roles["targets"].delegations
    key = next(iter(delegations.keys.values()))
    role = next(one for one in delegations.roles.values() if key.keyid in one.keyids)
    other = type(key)("ab" * 32, key.keytype, key.scheme, dict(key.keyval))
    delegations.keys["ab" * 32] = other
    role.keyids.append("ab" * 32)
    renewed(bench)


def third_root_key(bench: MetadataBench) -> None:
    bench.keys["targets"] += bench.make_keys(1)
    bench.name_keys(bench.root, "targets", 2)
    bench.publish_root()


def signed_by(role: str, other: str) -> Step:
    def misuse(bench: MetadataBench) -> None:
        bench.publish_targets(role, signers=bench.keys[other])
        bench.publish()

    return misuse


def store(bench: MetadataBench, name: str, data: object) -> None:
    """Publish edited metadata with its new length and hash."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    version = bench.roles[name].version
    bench.files[f"metadata/{version}.{name}.json"] = text
    bench.snapshot.meta[f"{name}.json"] = MetaFile(version)
    bench.publish()


def snapshot_as_timestamp(bench: MetadataBench) -> None:
    renewed(bench)
    name = f"metadata/{bench.snapshot.version}.snapshot.json"
    bench.files["metadata/timestamp.json"] = bench.files[name]


def other_specification(bench: MetadataBench) -> None:
    bench.publish_timestamp(lambda one: setattr(one, "spec_version", "2.0.0"))


def spelled(old: bytes, new: bytes) -> Step:
    def spell(bench: MetadataBench) -> None:
        data = bench.publish_timestamp()
        assert old in data
        bench.files["metadata/timestamp.json"] = data.replace(old, new, 1)

    return spell


def mark(name: str) -> Step:
    def set_mark(bench: MetadataBench) -> None:
        bench.publish_root(lambda root: root.unrecognized_fields.update({name: True}))

    return set_mark


def put(path: str, data: bytes, role: str) -> Step:
    def name_it(bench: MetadataBench) -> None:
        bench.put(path, data, role=role)
        bench.publish_targets(role)
        bench.publish()

    return name_it


def any_path(bench: MetadataBench) -> None:
    bench.roles["targets"].delegations.roles["policy"].paths = ["*"]
    renewed(bench)


def passed_on(bench: MetadataBench) -> None:
    key = bench.root.keys[bench.root.roles["snapshot"].keyids[0]]
    role = DelegatedRole("friend", [key.keyid], 1, terminating=True, paths=["policy/*"])
    delegations = Delegations({key.keyid: key}, {"friend": role})
    bench.roles["policy"].delegations = delegations
    bench.publish_targets("policy")
    bench.publish()


def lacking(name: str) -> Step:
    def lose(bench: MetadataBench) -> None:
        renewed(bench)
        del bench.files[name if name in bench.files else target(bench, name)]

    return lose


def without_target(name: str) -> Step:
    def drop(bench: MetadataBench) -> None:
        role = name.partition("/")[0] if "/" in name else "targets"
        role = role if role in bench.roles else "targets"
        del bench.roles[role].targets[name]
        bench.publish_targets(role)
        bench.publish()

    return drop


PART = {
    "format": "stoilo-part/1",
    "part": "launcher",
    "platform": "x86_64-linux",
    "version": "1",
    "serial": 1,
    "archive": {"name": "launcher", "size": 7, "sha256": "0" * 64},
}


def part(change: dict[str, object]) -> Step:
    def publish(bench: MetadataBench) -> None:
        program = b"program"
        bench.put("launcher/x86_64-linux", program)
        digest = (
            bench.roles["targets"].targets["launcher/x86_64-linux"].hashes["sha256"]
        )
        archive = {"name": "launcher", "size": 7, "sha256": digest}
        record = json.dumps(PART | {"archive": archive} | change)
        bench.put("launcher/x86_64-linux.json", record.encode())
        renewed(bench)

    return publish


def unknown_hash(bench: MetadataBench) -> None:
    info = bench.roles["targets"].targets["project.json"]
    sound = info.hashes["sha256"]
    bench.roles["targets"].targets["project.json"] = TargetFile(
        info.length, {"rot13": sound}, "project.json"
    )
    renewed(bench)


def ended(role: str) -> Step:
    """Renew everything but `role`, and wait until that has ended."""

    def let_it_end(bench: MetadataBench) -> None:
        bench.now += 8 * DAY_S
        long_ago = timedelta(days=400)

        def age(signed: object) -> None:
            signed.expires -= long_ago

        if role == "root":
            bench.publish_root(age)
        elif role == "snapshot":
            bench.publish_snapshot(age)
        elif role != "timestamp":
            bench.publish_targets(role, age)
            bench.publish_snapshot()
        if role == "timestamp":
            bench.publish_timestamp(age)
        else:
            bench.publish_timestamp()

    return let_it_end


def intermediate_root_ended(bench: MetadataBench) -> None:
    bench.publish_root(
        lambda root: setattr(root, "expires", root.expires - timedelta(days=400))
    )
    bench.publish_root()


ATTACKS = {
    "timestamp of yesterday": Attack("STO-K010", old_timestamp, renewed),
    "freeze: no newer timestamp": Attack(
        "STO-K011", later(8), steps(later(8), renewed)
    ),
    "freeze: an ended timestamp": Attack("STO-K011", ended("timestamp"), renewed),
    "freeze: an ended root": Attack("STO-K011", ended("root"), intermediate_root_ended),
    "freeze: an ended snapshot": Attack("STO-K011", ended("snapshot"), renewed),
    "freeze: ended targets": Attack("STO-K011", ended("targets"), renewed),
    "freeze: ended epochs": Attack("STO-K011", ended("gate"), renewed),
    "freeze: an ended list of revocations": Attack(
        "STO-K011", ended("revocation"), renewed
    ),
    "snapshot of yesterday": Attack("STO-K010", older_snapshot, renewed),
    "targets of yesterday": Attack("STO-K010", older_role("targets"), renewed),
    "revocations of yesterday": Attack("STO-K010", older_role("revocation"), renewed),
    "a role vanishes": Attack("STO-K010", lost_role, renewed),
    "root of strangers": Attack("STO-K031", root_of_strangers, rotated_root),
    "root of one old key of two": Attack("STO-K031", root_of_one_old_key, rotated_root),
    "root that its own keys did not sign": Attack(
        "STO-K031", root_without_its_own_keys, rotated_root
    ),
    "root skips a version": Attack("STO-K031", skipped_root, new_root),
    "root repeats a version": Attack("STO-K031", repeated_root, new_root),
    "gap in the roots": Attack("STO-K031", gap_of_roots, many_roots(2)),
    "roots without end": Attack("STO-K031", many_roots(65), many_roots(64)),
    "parts of two releases": Attack("STO-K019", two_targets, renewed),
    "other snapshot under the name": Attack(
        "STO-K019",
        steps(renewed, swapped("3.snapshot.json", "1.snapshot.json")),
        renewed,
    ),
    "endless timestamp": Attack(
        "STO-K013", endless("metadata/timestamp.json"), renewed
    ),
    "endless snapshot": Attack(
        "STO-K013", steps(renewed, endless("metadata/3.snapshot.json")), renewed
    ),
    "endless root": Attack(
        "STO-K013", steps(new_root, endless("metadata/2.root.json")), new_root
    ),
    "target longer than named": Attack("STO-K013", longer_target, renewed),
    "target changed": Attack("STO-K019", changed_target, renewed),
    "target under an unknown hash": Attack("STO-K019", unknown_hash, renewed),
    "one key of two": Attack("STO-K012", one_key("targets"), two_keys),
    "one signature written twice": Attack("STO-K013", signature_twice, two_keys),
    "key of another role": Attack("STO-K012", signed_by("gate", "policy"), renewed),
    "online key for targets": Attack(
        "STO-K012", signed_by("targets", "snapshot"), renewed
    ),
    "root names a key twice": Attack("STO-K012", key_twice, third_root_key),
    "targets name a key twice": Attack("STO-K012", delegated_key_twice, renewed),
    "snapshot in the timestamp's place": Attack(
        "STO-K013", snapshot_as_timestamp, renewed
    ),
    "other specification": Attack("STO-K013", other_specification, renewed),
    "white space in metadata": Attack("STO-K013", spelled(b"{", b"{ "), renewed),
    "a name twice in metadata": Attack(
        "STO-K013", spelled(b'"version":', b'"version":9,"version":'), renewed
    ),
    "another escape in metadata": Attack(
        "STO-K013", spelled(b'"timestamp"', b'"time\\u0073tamp"'), renewed
    ),
    "a field that readers fill in is null": Attack(
        "STO-K013", spelled(b'"spec_version":"1.0.31"', b'"spec_version":null'), renewed
    ),
    "unknown mark": Attack("STO-K015", mark("x-stoilo-some"), mark("x-other")),
    "release of a replaced key": Attack("STO-K010", hide_new_root, renewed),
    "policy role names an epoch": Attack(
        "STO-K013", put("gate/9.json", b"{}", "policy"), renewed
    ),
    "targets and role speak for one name": Attack(
        "STO-K013",
        put("gate/9.json", b"{}", "targets"),
        put("x/9.json", b"{}", "targets"),
    ),
    "role for every name": Attack("STO-K013", any_path, renewed),
    "role passes its right on": Attack("STO-K013", passed_on, renewed),
    "file is missing": Attack("STO-K013", lacking("metadata/3.snapshot.json"), renewed),
    "target is missing": Attack("STO-K013", lacking("project.json"), renewed),
    "no list of revocations": Attack(
        "STO-K013", without_target("revocation/denied.json"), renewed
    ),
    "no epochs": Attack("STO-K013", without_target("gate/epochs.json"), renewed),
    "unknown field in a target": Attack(
        "STO-K013",
        put("policy/accepted.json", b'{"widen":true}', "policy"),
        put("policy/accepted.json", b'{"digests":[]}', "policy"),
    ),
    "record of another program": Attack(
        "STO-K013", part({"archive": PART["archive"]}), part({})
    ),
    "record of another platform": Attack(
        "STO-K013", part({"platform": "aarch64-linux"}), part({"serial": 2})
    ),
    "development root under a release build": Attack(
        "STO-K015", mark(DEVELOPMENT_MARK), new_root, release_build=True
    ),
    "rehearsal root under a release build": Attack(
        "STO-K015", mark(REHEARSAL_MARK), new_root, release_build=True
    ),
}


def host(tmp_path: Path, name: str) -> tuple[MetadataBench, Path]:
    """Return a release of two versions and the memory of a host that has seen both."""
    bench = MetadataBench(NOW)
    cache = tmp_path / "cache"
    if name == "release of a replaced key":
        keep_first_timestamp(bench)
        forget_timestamp_keys(bench)
    else:
        bench.publish_targets("revocation")
        renewed(bench)
    assert bench.load(cache) == ORIGIN
    return bench, cache


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused_with_its_code_and_does_no_harm(
    tmp_path: Path, name: str
) -> None:
    """Afterwards the honest release of before is accepted, or a newer one asked for.

    Only what enough root keys signed stays known; the next root repairs it.
    """
    bench, cache = host(tmp_path, name)
    honest, attack = dict(bench.files), ATTACKS[name]
    attack.mount(bench)
    assert bench.load(cache, release_build=attack.release_build) == attack.code
    bench.files = honest
    by_root_keys = ("STO-K011", "STO-K012", "STO-K015")
    newer_needed = ("STO-K010", "STO-K011", "STO-K010")
    assert bench.load(cache) in {ORIGIN, *newer_needed, *by_root_keys}


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_counterpart_is_accepted(tmp_path: Path, name: str) -> None:
    bench, cache = host(tmp_path, name)
    attack = ATTACKS[name]
    attack.honest(bench)
    assert bench.load(cache, release_build=attack.release_build) == ORIGIN


def test_every_code_is_explained() -> None:
    for code in {attack.code for attack in ATTACKS.values()}:
        assert find_entry(code).action
