"""The frozen parts as a volunteer starts them: how long until a task runs, how large.

Everything is built here as a release is (`stoilo release build`), for a root made for the
occasion, and started the way a BOINC client does: the launcher in a slot. Programs and
trees were read before, so the page cache is warm on every side. "Explained" is launcher
and verifier alone: all that is checked before a task, and then words instead of a run.
Where nothing can be frozen (no binutils, compiler or shared Python) there are no rows.
The flavor with all libraries over numpy is built twice besides: seconds, sizes, equal bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row, median_seconds, paired_seconds, seconds_once
from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import parse_tree, platform_name
from stoilo.core.types import RunStatus
from stoilo.executor.verifier.trust import installed_release
from stoilo.executor.verifier.workunit import Disposition
from stoilo.flavors.build import BuiltPart, build_flavor
from stoilo.flavors.manifest import find_flavor, shipped_manifest
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail
from stoilo.signer.release_pack import pack_release, read_release
from tests.support.gate import GateBench
from tests.support.release import certify_parts
from tests.support.slots import BoincData

FLAVORS = ("pure", "numeric")
LARGE = "science"
PEERS = {"pure": "pass", "numeric": "import numpy"}
SOURCE = b"def first(kwargs):\n    return kwargs['x']\n"
ARGUMENTS = skeleton.encode({"x": 1})
REACH = 2.5
START_MS, MS_PER_100_MB = 150.0, 200.0
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Parts:
    """What was built: ``launcher/``, ``verifier/`` and ``flavor/`` of one release.

    Attributes:
        directory: where.
        flavors: their names.
    """

    directory: Path
    flavors: tuple[str, ...]

    @property
    def launcher(self) -> Path:
        """The launcher."""
        return self.directory / "launcher" / platform_name()

    @property
    def verifier(self) -> Path:
        """The archive that the launcher unpacks."""
        return self.directory / "verifier" / f"{platform_name()}.tar"

    def flavor(self, name: str) -> Path:
        """A flavor's archive."""
        return self.directory / "flavor" / name / f"{platform_name()}.tar.xz"

    def tree(self, name: str) -> Path:
        """A flavor as it lies unpacked, ready to be started."""
        return self.directory / "parts" / name / "tree"

    def bytes_unpacked(self, manifest: Path) -> int:
        """Return the size of the tree that a manifest describes."""
        return parse_tree(manifest.with_suffix(".tree").read_bytes()).size

    def files(self) -> dict[str, Path]:
        """Return every file of the release by its target name."""
        return {
            path.relative_to(self.directory).as_posix(): path
            for part in ("launcher", "verifier", "flavor")
            for path in (self.directory / part).rglob("*")
            if path.is_file() and path.suffix != ".lock"
        }


def budget_ms(tree_bytes: int) -> float:
    """Return what launcher and verifier may take with a tree of that size, ms."""
    return START_MS + MS_PER_100_MB * tree_bytes / (100 * MEGABYTE)


def build_parts(
    gate: GateBench, directory: Path, names: tuple[str, ...] = FLAVORS
) -> Parts | None:
    """Build launcher, verifier and flavors for the gate's root, and certify them.

    None where they cannot be built; why is on stderr.
    """
    flavors = [word for name in names for word in ("--flavor", name)]
    words = ["--output", str(directory), "--root", str(gate.root.root_file)]
    words += ["--origin", gate.root.origin, "--serial", "1", *flavors]
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", "release", "build", *words],
        check=False,
        stdout=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        return None
    parts = Parts(directory, names)
    certify_parts(gate.root.directory, parts.files(), gate.now)
    return parts


def lay_out(gate: GateBench, parts: Parts, data: BoincData, number: int) -> Path:
    """Return a new slot with one admitted `pure` task, as the project would send it."""
    statement = gate.statement(
        task_id=f"task-{number}",
        entry="first",
        task_module=content_digest(SOURCE),
        arguments=content_digest(ARGUMENTS),
        blobs=(),
        flavor=find_flavor("pure").digest,
    )
    admitted = gate.admit(statement)
    release = pack_release(read_release(gate.root.directory))
    files = [
        ("admission", admitted.envelope),
        ("proof", admitted.proof),
        ("revocations", gate.revocations),
        ("task_module", SOURCE),
        ("arguments", ARGUMENTS),
        ("release", release),
        ("flavor", parts.flavor("pure").read_bytes()),
        ("stoilo-verifier.tar", parts.verifier.read_bytes()),
    ]
    return data.slot(files, number=number, workunit=f"task-{number}_1")


def start(parts: Parts, slot: Path, *words: str) -> str:
    """Run the launcher in a slot to its end; returns what it printed."""
    done = subprocess.run(
        [parts.launcher, *words],
        cwd=slot,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def measure(
    runs: int = 15, flavors: tuple[str, ...] = FLAVORS, large: str = LARGE
) -> list[Row]:
    """Build everything, then return the rows; the last of `flavors` is started cold."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        now = int(time.time())
        gate = GateBench(place / "root", now=now, installed=installed_release())
        took, parts = seconds_once(lambda: build_parts(gate, place / "build", flavors))
        if parts is None:
            return []
        return [
            _runtime_row(parts, runs),
            *_chain_rows(gate, parts, BoincData(place / "boinc"), runs),
            *_size_rows(parts),
            Row(f"launcher, verifier, {', '.join(flavors)} built", took, "s"),
            *(_large_rows(place, large) if large else ()),
        ]


def _runtime_row(parts: Parts, runs: int) -> Row:
    """Compare a frozen runtime's cold start with an interpreter's."""
    name = parts.flavors[-1]
    level, program = load_level(name), str(parts.tree(name) / "stoilo-runtime")
    imports = PEERS[name]

    def frozen() -> None:
        with Jail(level, TASK_JOB, command=lambda: [program]) as jail:
            request = TaskRequest(SOURCE.decode(), "first", ARGUMENTS)
            outcome = run_task(jail, request, level.default_limits())
        assert outcome.status is RunStatus.OK, outcome

    def plain() -> None:
        subprocess.run([sys.executable, "-c", imports], check=True)

    ours, peer = paired_seconds(frozen, plain, runs)
    return Row(
        name=f"frozen {name} runtime, from start to a task's answer",
        ours=ours * 1e3,
        unit="ms",
        peer_name=f"python -c '{imports}'",
        peer=peer * 1e3,
        ratio=ours / peer,
        ratio_of="of the peer's time",
        target=f"≤ {REACH}",
        met=ours / peer <= REACH,
    )


def _chain_rows(gate: GateBench, parts: Parts, data: BoincData, runs: int) -> list[Row]:
    """Time the launcher and what it starts: first, again, and with a run."""
    slots = iter([lay_out(gate, parts, data, n) for n in range(runs + 3)])
    first, _ = seconds_once(lambda: start(parts, next(slots), "--explain"))
    explained_slot = next(slots)
    explained = median_seconds(lambda: start(parts, explained_slot, "--explain"), runs)
    whole = median_seconds(lambda: start(parts, next(slots)), runs)
    header = data.result(f"task-{runs + 2}_1").header
    assert header.disposition is Disposition.RAN, header
    size = parts.bytes_unpacked(parts.verifier)
    reach = budget_ms(size)
    return [
        Row(
            name=f"launcher + verifier, one task explained, tree of {size / MEGABYTE:.0f} MB",
            ours=explained * 1e3,
            unit="ms",
            target=f"≤ {reach:.0f} ms: {START_MS:.0f} + {MS_PER_100_MB:.0f} per 100 MB",
            met=explained * 1e3 <= reach,
        ),
        Row("the same, the first time: the verifier is unpacked", first * 1e3, "ms"),
        Row("launcher to result file, one small pure task", whole * 1e3, "ms"),
    ]


def _size_rows(parts: Parts) -> list[Row]:
    """Return how large each part is, packed and unpacked."""
    archives = {"verifier": parts.verifier}
    archives |= {name: parts.flavor(name) for name in parts.flavors}
    rows = [Row("size of the launcher", parts.launcher.stat().st_size / MEGABYTE, "MB")]
    for name, archive in archives.items():
        unpacked = parts.bytes_unpacked(archive.with_name(f"{platform_name()}.tree"))
        rows.append(_size_row(name, archive.stat().st_size, unpacked))
    return rows


def _size_row(name: str, packed: int, unpacked: int) -> Row:
    return Row(
        name=f"size of {name}, as shipped",
        ours=packed / MEGABYTE,
        unit="MB",
        peer_name="unpacked",
        peer=unpacked / MEGABYTE,
        ratio=packed / unpacked,
        ratio_of="of it",
    )


def _large_rows(place: Path, name: str) -> list[Row]:
    """Build the large flavor twice; returns time and size."""
    flavor = find_flavor(name)

    def build(folder: str) -> BuiltPart:
        return build_flavor(flavor, shipped_manifest(flavor), place / folder / name)

    took, one = seconds_once(lambda: build("one"))
    again, other = seconds_once(lambda: build("another/deeper"))
    equal = (one.tree, one.archive_digest) == (other.tree, other.archive_digest)
    return [
        _size_row(f"{name}, {one.files:,} files", one.archive_size, one.size),
        Row(
            name=f"{name} built: {', '.join(flavor.modules)}",
            ours=took,
            unit="s",
            peer_name="again, in another place",
            peer=again,
            target="byte-equal",
            met=equal,
        ),
    ]
