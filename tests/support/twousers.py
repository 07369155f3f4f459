"""A released project whose signer runs as one user and its server as another.

As `deploy/systemd` lays it out: the signer's user owns the release, its keys are closed,
what is public is the group's to read, and the server reaches it by a link. For root only.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from stoilo.core.errors import InternalError
from stoilo.testing.deployment import UpLine

__all__ = ["SERVER_UID", "SIGNER_UID", "STRANGER_UID", "TwoUsers"]

SERVER_UID: Final = 23_001
SIGNER_UID: Final = 23_002
STRANGER_UID: Final = 23_003
GROUP: Final = SERVER_UID
START_S: Final = 120.0
STOP_S: Final = 60.0
_CLOSED: Final = ("online", "state")


@dataclass
class TwoUsers:
    """A place below the system's temporary folder, and the two users' processes.

    Attributes:
        python: an interpreter that both users may run (`tests.support.openpython`).
        place: everything of both; removed at the end.
    """

    python: str
    place: Path = field(
        default_factory=lambda: Path(tempfile.mkdtemp(prefix="two-users-"))
    )
    _processes: dict[subprocess.Popen[bytes], int] = field(default_factory=dict)

    @property
    def interpreter(self) -> Path:
        """An environment of its own: a zygote looks for libraries nowhere else."""
        return self.place / "env" / "bin" / "python"

    @property
    def keys(self) -> Path:
        """The release, which is the signer's."""
        return self.place / "signer" / "keys"

    @property
    def data(self) -> Path:
        """The server's data directory."""
        return self.place / "data"

    @property
    def socket(self) -> Path:
        """Where the signer listens."""
        return self.place / "run" / "signer.sock"

    def __enter__(self) -> Self:
        """Make the folders."""
        self.place.chmod(0o755)
        self._make_environment()
        for folder, uid, mode in (
            (self.keys.parent, SIGNER_UID, 0o750),
            (self.socket.parent, SIGNER_UID, 0o750),
            (self.data, SERVER_UID, 0o700),
        ):
            folder.mkdir()
            os.chown(folder, uid, GROUP)
            folder.chmod(mode)
        (self.data / "keys").symlink_to(self.keys)
        settings = self.data / "stoilo.toml"
        settings.write_text(f"signer_socket = {json.dumps(str(self.socket))}\n")
        os.chown(settings, SERVER_UID, GROUP)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server, then the signer that it may still ask; remove everything."""
        for process in sorted(self._processes, key=lambda one: self._processes[one]):
            self.stop(process)
        shutil.rmtree(self.place)

    def _make_environment(self) -> None:
        """Lay out a virtual environment with the libraries that run the tests."""
        self.interpreter.parent.mkdir(parents=True)
        self.interpreter.symlink_to(self.python)
        env = self.interpreter.parents[1]
        home = f"home = {Path(self.python).parent}\n"
        (env / "pyvenv.cfg").write_text(home, encoding="ascii")
        libraries = Path(sysconfig.get_path("purelib"))
        packages = env / "lib" / libraries.parent.name
        packages.mkdir(parents=True)
        (packages / libraries.name).symlink_to(libraries)

    def hand_over(self) -> None:
        """Give the release to the signer: keys closed, the rest the group's to read."""
        for folder, _, names in os.walk(self.keys):
            path = Path(folder)
            top = path.relative_to(self.keys).parts[:1]
            closed = bool(top) and top[0] in _CLOSED
            os.chown(path, SIGNER_UID, GROUP)
            path.chmod(0o700 if closed else 0o750)
            for name in names:
                os.chown(path / name, SIGNER_UID, GROUP)
                (path / name).chmod(0o600 if closed else 0o640)

    def start_signer(self) -> subprocess.Popen[bytes]:
        """Run the signer as the unit does."""
        words = ["--keys", self.keys, "--socket", self.socket]
        words += ["--allow-uid", SERVER_UID]
        started = self._start(SIGNER_UID, 0o027, "stoilo.signer.process", *words)
        end = time.monotonic() + STOP_S
        while not self.socket.exists():
            if started.poll() is not None or time.monotonic() > end:
                raise InternalError("STO-K020", f"no signer: {self.said()}")
            time.sleep(0.05)
        return started

    def start_server(self, *, volunteers: int = 0) -> UpLine:
        """Run the server as the unit does; returns its line once it is ready."""
        words = ["--data", self.data, "--volunteers", volunteers]
        words += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        started = self._start(SERVER_UID, 0o077, "stoilo", "up", *words)
        if (
            started.stdout is None
            or not select.select([started.stdout], [], [], START_S)[0]
        ):
            raise InternalError("STO-U005", f"`stoilo up` is not ready: {self.said()}")
        line = started.stdout.readline()
        if not line:
            raise InternalError("STO-U005", f"`stoilo up` ended: {self.said()}")
        return msgspec.json.decode(line, type=UpLine)

    def run_as(self, uid: int, source: str) -> str:
        """Return what a short program prints that runs as `uid`, in the group."""
        done = subprocess.run(
            [str(self.interpreter), "-c", source],
            cwd="/",
            env={"PATH": os.defpath},
            user=uid,
            group=GROUP,
            extra_groups=(),
            capture_output=True,
            check=False,
            text=True,
        )
        return (done.stdout or done.stderr[-500:]).strip()

    def said(self) -> str:
        """Return the last that both processes have said."""
        logs = sorted(self.place.glob("*.log"))
        return "".join(log.read_text(errors="replace")[-1000:] for log in logs)

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a process of ours and wait."""
        del self._processes[process]
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start(
        self, uid: int, umask: int, module: str, *words: object
    ) -> subprocess.Popen[bytes]:
        with (self.place / f"{uid}.log").open("ab") as log:
            started = subprocess.Popen(
                [str(self.interpreter), "-m", module, *map(str, words)],
                cwd="/",
                env={"PATH": os.defpath},
                user=uid,
                group=GROUP,
                extra_groups=(),
                umask=umask,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._processes[started] = uid
        return started
