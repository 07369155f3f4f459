"""A throw-away project of real processes, and a volunteer who takes what he is given."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

import stoilo
from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint
from stoilo.audit.format.note import parse_note
from stoilo.cli.demo.parts import load_research
from stoilo.core.errors import InternalError
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.workunit import Disposition, HostState, Work, parse_result
from stoilo.executor.volunteer.installed import InstalledExecutor
from stoilo.server.revocation.wishes import FOLDER
from stoilo.signer.release_pack import pack_release, read_release
from stoilo.testing.deployment import Deployment

__all__ = ["CODE", "DrillHost", "DrillProject", "Packet", "running_witness"]

CODE = re.compile(r"STO-[A-Z][0-9]{3}")
WAIT_S = 60.0
COMMAND_S = 120.0


@dataclass
class DrillProject:
    """`stoilo up` on a directory, with what drills do to it.

    Attributes:
        data: the data directory.
        log_policy: file that names witnesses, None for none.
        volunteers: local ones.
    """

    data: Path
    log_policy: Path | None = None
    volunteers: int = 0
    deployment: Deployment = field(init=False)

    def __post_init__(self) -> None:
        """Make no process yet."""
        self.deployment = Deployment(
            self.data, volunteers=self.volunteers, log_policy=self.log_policy
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server inside the block."""
        self.deployment.start()
        try:
            yield
        finally:
            self.deployment.stop()

    def try_start(self) -> str:
        """Start and stop the server; returns "" or the code with which it refuses."""
        messages = self.data.parent / f"{self.data.name}.log"
        before = messages.stat().st_size if messages.exists() else 0
        try:
            with self.running():
                return ""
        except InternalError:
            said = messages.read_bytes()[before:].decode("utf-8", "replace")
            codes = CODE.findall(said)
            return codes[-1] if codes else "no code"

    def command(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run ``stoilo audit WORDS``."""
        return subprocess.run(
            [sys.executable, "-m", "stoilo", "audit", *words],
            check=False,
            capture_output=True,
            timeout=COMMAND_S,
        )

    def watch(self, state: Path, *words: str) -> tuple[int, list[str]]:
        """Run ``stoilo audit monitor --once``; returns its exit code and what it found."""
        policy = ["--policy", self.deployment.log_key(), "--state", str(state)]
        done = self.command(
            "monitor", str(self.data), *policy, "--once", "--json", *words
        )
        lines = done.stdout.splitlines()
        return done.returncode, [msgspec.json.decode(line)["kind"] for line in lines]

    def withdraw(self, *words: str) -> bool:
        """Run ``stoilo audit revoke`` on this project; returns whether it is in force."""
        done = self.command("revoke", "--data", str(self.data), *words, "--json")
        return done.returncode == 0 and json.loads(done.stdout)["in_force"] is True

    def note(self) -> bytes:
        """Return the published checkpoint."""
        return (self.data / "audit" / "log" / "checkpoint").read_bytes()

    def checkpoint(self) -> Checkpoint:
        """Return what the published checkpoint says."""
        return parse_checkpoint(parse_note(self.note()).text)

    def revocations(self) -> bytes:
        """Return the file of revocations that workunits carry at this moment."""
        return (self.data / FOLDER / "current").read_bytes()

    def release(self) -> bytes:
        """Return the release pack of this moment."""
        return pack_release(read_release(self.data / "keys"))

    def keep(self, name: str) -> Path:
        """Copy the whole data directory, as a backup does; the server must rest."""
        place = self.data.parent / name
        shutil.copytree(
            self.data, place, ignore=shutil.ignore_patterns("run", "*.sock")
        )
        return place

    def restore(self, backup: Path, *parts: str) -> None:
        """Put parts of a backup in place of the present ones."""
        for part in parts:
            target, source = self.data / part, backup / part
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy2(source, target)

    def compute(self) -> object:
        """Have local volunteers compute a small honest task; the server must run."""
        research = load_research()
        part = research.make_integral_parts()[0]

        async def ask() -> object:
            """Return the answer of one task."""
            async with await stoilo.connect(self.data / "connection.json") as conn:
                staged = conn.create_task(func=research.integrate, kwargs=part)
                return await (await staged.submit()).result(timeout=WAIT_S)

        return asyncio.run(ask())


@dataclass(frozen=True, slots=True)
class Packet:
    """A workunit as it arrives, from whoever sent it."""

    task_id: str
    envelope: bytes
    proof: bytes
    module: bytes
    arguments: bytes
    release: bytes
    revocations: bytes


class DrillHost:
    """A volunteer's real executor with a disk and a clock of its own.

    Attributes:
        late_s: how far its clock is ahead, s.
    """

    def __init__(self, folder: Path, root: bytes) -> None:
        """Make the host; `root` is what its owner gave it as ``--root``."""
        self.late_s = 0.0
        self._folder = folder
        self._count = 0
        state = folder / "executor"
        state.mkdir(parents=True, mode=0o700)
        self._executor = InstalledExecutor(
            root, state, HostState(), clock=lambda: time.time() + self.late_s
        )

    def take(self, packet: Packet) -> str:
        """Return "" when the work ran, else the code with which it was refused."""
        self._count += 1
        place = self._folder / f"work-{self._count}"
        place.mkdir()
        files = {
            workunit.ADMISSION: packet.envelope,
            workunit.PROOF: packet.proof,
            workunit.TASK_MODULE: packet.module,
            workunit.ARGUMENTS: packet.arguments,
            workunit.RELEASE: packet.release,
            workunit.REVOCATIONS: packet.revocations,
        }
        for name, data in files.items():
            (place / name).write_bytes(data)
        named = tuple((name, place / name) for name in files)
        work = Work(f"{packet.task_id}_1_0", f"{packet.task_id}_1", "pure", named)
        header = parse_result(self._executor.execute(work)).header
        return "" if header.disposition is Disposition.RAN else header.code

    def close(self) -> None:
        """End the jail."""
        self._executor.close()


class _WitnessLine(msgspec.Struct, frozen=True):
    """The one line that a witness prints."""

    url: str
    vkey: str


@contextlib.contextmanager
def running_witness(folder: Path, log_vkey: str) -> Iterator[str]:
    """Run a real witness of one log; yields its URL. Its policy is in ``policy.txt``."""
    state = folder / "witness"
    name = "drill.example/w1"
    made = [sys.executable, "-m", "stoilo", "audit"]
    subprocess.run(
        [*made, "key", "witness", "--data", str(state), "--name", name],
        check=True,
        capture_output=True,
    )
    with (folder / "witness.log").open("ab") as messages:
        process = subprocess.Popen(
            [*made, "witness", "--data", str(state), "--listen", "127.0.0.1:0",
             "--log", log_vkey],
            stdout=subprocess.PIPE,
            stderr=messages,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = msgspec.json.decode(process.stdout.readline(), type=_WitnessLine)
        text = f"witness w1 {line.vkey} {line.url}\nquorum w1\n"
        (folder / "policy.txt").write_text(text)
        yield line.url
    finally:
        process.terminate()
        process.wait(COMMAND_S)
        if process.stdout is not None:
            process.stdout.close()
