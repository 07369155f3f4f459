"""The whole road: the policy role adds a flavor with a library, and a verifier runs its task.

The verifier was there before; nothing of it changes. The flavor's tree is a real one whose
program is this interpreter's zygote.
"""

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import platform_name
from stoilo.core.libraries import library_target, load_library
from stoilo.executor.verifier.execution import TreeRuntimes, VerifiedExecutor
from stoilo.executor.verifier.targets import ArchiveFile, PartFile
from stoilo.executor.verifier.trust import installed_release
from stoilo.executor.verifier.workunit import HostState, Work, parse_result
from stoilo.sandbox.process.supervisor import zygote_command
from stoilo.signer.ceremony.built_parts import read_parts_from
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.development.root import publish_changes
from stoilo.signer.release_pack import pack_release, read_release
from tests.support.frozen import MadeTree, make_tree
from tests.support.gate import GateBench

pytest.importorskip("scipy")
SCIPY = load_library("scipy")
MANIFEST = b"requirements:\n  - scipy==1.17.1\nmodules:\n  - scipy\n"
SCIENCE = content_digest(MANIFEST)
SOURCE = b"""from scipy import linalg

def task(kwargs):
    return float(linalg.det([[1.0, 2.0], [3.0, kwargs["x"]]]))
"""


@pytest.fixture
def gate(tmp_path: Path) -> GateBench:
    return GateBench(
        tmp_path / "root", now=int(time.time()), installed=installed_release()
    )


@pytest.fixture
def tree(tmp_path: Path) -> MadeTree:
    """Return a flavor's archive; its program starts a zygote."""
    program = f"#!{sys.executable} -SsP\n{zygote_command()[-1]}"
    files = {"stoilo-runtime": program.encode()}
    return make_tree(tmp_path / "flavor-tree", files, part="science")


def build(directory: Path, tree: MadeTree) -> Path:
    """Lay out what `stoilo flavor build` leaves."""
    folder = directory / "flavor" / "science"
    folder.mkdir(parents=True)
    platform = platform_name()
    archive = tree.archive.read_bytes()
    part = PartFile(
        format="stoilo-part/1",
        part="science",
        platform=platform,
        version="1",
        serial=1,
        archive=ArchiveFile(
            f"{platform}.tar.xz", len(archive), content_digest(archive)
        ),
        tree=tree.wanted.digest,
        python="3.11",
        flavor=SCIENCE,
        alias="a" * 32,
        level="numeric",
        libraries=(SCIPY.digest,),
    )
    (folder / f"{platform}.tar.xz").write_bytes(archive)
    (folder / f"{platform}.tree").write_bytes(tree.manifest)
    (folder / f"{platform}.json").write_bytes(msgspec.json.encode(part))
    (folder / "manifest.yaml").write_bytes(MANIFEST)
    return directory


@pytest.fixture
def verifier(tmp_path: Path, gate: GateBench) -> Any:
    """Return a host's verifier, as it was before anybody thought of the flavor."""
    for name in ("state", "flavors"):
        (tmp_path / name).mkdir(mode=0o700)
    made = VerifiedExecutor(
        gate.root.root_file.read_bytes(),
        tmp_path / "state",
        HostState(max_level="numeric"),
        clock=time.time,
        runtimes=TreeRuntimes(tmp_path / "flavors", platform_name(), 1 << 30),
    )
    yield made
    made.close()


def work(folder: Path, gate: GateBench, tree: MadeTree, **changes: object) -> Work:
    """Return a task over scipy, admitted, with the release of this moment."""
    arguments = skeleton.encode({"x": 4.0})
    level = next(one for one in gate.installed.levels if one.name == "numeric")
    told = {
        "entry": "task",
        "task_module": content_digest(SOURCE),
        "arguments": content_digest(arguments),
        "blobs": (),
        "flavor": SCIENCE,
        "level": level.name,
        "level_digest": level.digest,
        "libraries": (SCIPY.digest,),
        "critical": ("libraries",),
    }
    admitted = gate.admit(gate.statement(**told | changes))
    files = {
        "admission": admitted.envelope,
        "proof": admitted.proof,
        "revocations": gate.revocations,
        "task_module": SOURCE,
        "arguments": arguments,
        "release": pack_release(read_release(gate.root.directory)),
        "flavor": tree.archive.read_bytes(),
    }
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    paths = tuple((name, folder / name) for name in files)
    return Work("task-1_1_0", "task-1_1", "numeric", paths)


def outcome(verifier: VerifiedExecutor, work: Work) -> tuple[str, object]:
    """Return code and value of a run."""
    file = parse_result(verifier.execute(work))
    frame: Any = skeleton.decode(file.frame) if file.frame else {"value": None}
    value = frame["value"]
    return file.header.code, None if value is None else skeleton.decode(value)


def test_policy_role_adds_a_flavor_that_a_verifier_of_before_runs(
    tmp_path: Path, gate: GateBench, tree: MadeTree, verifier: VerifiedExecutor
) -> None:
    assert outcome(verifier, work(tmp_path / "early", gate, tree))[0] == "STO-X013"
    changes = read_parts_from(build(tmp_path / "dist", tree), by_policy=True)
    targets = gate.root.trust.targets_version
    publish_changes(gate.root.directory, changes, gate.now)
    assert outcome(verifier, work(tmp_path / "wu", gate, tree)) == ("", -2.0)
    names = {path.name for path in (gate.root.directory / "metadata").iterdir()}
    assert f"{targets + 1}.targets.json" not in names


def test_admission_without_the_flavors_libraries_does_not_run(
    tmp_path: Path, gate: GateBench, tree: MadeTree, verifier: VerifiedExecutor
) -> None:
    changes = read_parts_from(build(tmp_path / "dist", tree), by_policy=True)
    publish_changes(gate.root.directory, changes, gate.now)
    bare = work(tmp_path / "wu", gate, tree, libraries=(), critical=())
    assert outcome(verifier, bare) == ("STO-A032", None)


def test_library_that_the_release_no_longer_has_ends_its_tasks(
    tmp_path: Path, gate: GateBench, tree: MadeTree, verifier: VerifiedExecutor
) -> None:
    name = library_target(SCIPY)
    publish_changes(gate.root.directory, Changes(drop=(name,)), gate.now)
    assert outcome(verifier, work(tmp_path / "wu", gate, tree))[0] == "STO-A032"
    again = NewTarget.of(name, gate.root.trust.libraries[SCIPY.digest])
    publish_changes(gate.root.directory, Changes(put=(again,)), gate.now)
    assert outcome(verifier, work(tmp_path / "again", gate, tree))[0] == "STO-X013"
