"""Debian's own BOINC client, unmodified, as a process of these tests.

The client runs as an ordinary user in a data directory of its own, attached by an account
file; it is told nothing that loosens what it checks. Only its two programs are used:
``boinc`` and, for what a person does in the manager, ``boinccmd``.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

from stoilo.core.errors import InternalError
from tests.support.boincpackage import BOINC, BOINCCMD, boinc_user
from tests.support.descendants import alive, descendants

__all__ = ["BoincClient", "ClientTask", "parse_tasks"]

_T = TypeVar("_T")

START_S: Final = 60.0
WAIT_S: Final = 300.0
STOP_S: Final = 90.0
"""The client gives its tasks a minute to end."""

POLL_S: Final = 0.2
TAIL_LINES: Final = 60
STARTS: Final = 3

CC_CONFIG: Final = """<cc_config>
<log_flags><task>1</task><file_xfer>1</file_xfer><sched_ops>1</sched_ops>
<sched_op_debug>1</sched_op_debug><task_debug>1</task_debug></log_flags>
<options><report_results_immediately>1</report_results_immediately>
<max_file_xfers>16</max_file_xfers><max_file_xfers_per_project>16</max_file_xfers_per_project>
<no_info_fetch>1</no_info_fetch><dont_contact_ref_site>1</dont_contact_ref_site>
<no_gpus>1</no_gpus><allow_multiple_clients>1</allow_multiple_clients>
<skip_cpu_benchmarks>1</skip_cpu_benchmarks><ncpus>{cpus}</ncpus></options>
</cc_config>
"""
PREFERENCES: Final = """<global_preferences>
<run_on_batteries>1</run_on_batteries><run_if_user_active>1</run_if_user_active>
<suspend_cpu_usage>0</suspend_cpu_usage><cpu_usage_limit>100</cpu_usage_limit>
<max_ncpus_pct>100</max_ncpus_pct><leave_apps_in_memory>1</leave_apps_in_memory>
<work_buf_min_days>0.0001</work_buf_min_days>
<work_buf_additional_days>0</work_buf_additional_days><disk_interval>1</disk_interval>
<ram_max_used_busy_pct>90</ram_max_used_busy_pct>
</global_preferences>
"""
ACCOUNT: Final = """<account>
<master_url>{project}</master_url>
<authenticator>{key}</authenticator>
</account>
"""


@dataclass(frozen=True, slots=True)
class ClientTask:
    """One task as ``boinccmd --get_tasks`` shows it, its words as they are."""

    name: str
    fields: Mapping[str, str]

    @property
    def active(self) -> str:
        """State of its process: ``EXECUTING``, ``SUSPENDED`` and so on."""
        return self.fields.get("active_task_state", "")

    @property
    def state(self) -> str:
        """State of the copy: ``downloading``, ``downloaded``, ``uploading`` and so on."""
        return self.fields.get("state", "")

    def number(self, name: str) -> float:
        """Return a number that is shown of it, 0 where none is."""
        return float(self.fields.get(name, "0").split()[0])


@dataclass
class BoincClient:
    """A BOINC client attached to one project.

    Attributes:
        directory: its data directory; made, below a directory that its user may enter.
        project: master URL.
        key: the account's.
        cpus: processors that it believes to have.
        user: whom it runs as.
    """

    directory: Path
    project: str
    key: str
    cpus: int = 2
    user: pwd.struct_passwd = field(default_factory=boinc_user)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _port: int = field(default=0, init=False)
    _password: str = field(
        default_factory=lambda: secrets.token_hex(16), init=False, repr=False
    )

    def __enter__(self) -> Self:
        """Attach and start it."""
        self.attach()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it and remove its directory; show its log when the test failed."""
        try:
            if error is not None:
                print(self.log_tail())
            self.stop()
        finally:
            shutil.rmtree(self.directory)

    @property
    def log(self) -> Path:
        """Return the file of its messages."""
        return self.directory / "client.log"

    @property
    def project_folder(self) -> Path:
        """Return the directory of the project's files."""
        return self.directory / "projects" / _escape(self.project)

    @property
    def home(self) -> Path:
        """Return where the launcher keeps what it has unpacked."""
        return self.directory / "stoilo"

    def attach(self) -> None:
        """Make the data directory with account file and settings, unless it is there."""
        if self.directory.exists():
            return
        self.directory.mkdir(mode=0o770)
        account = f"account_{_escape(self.project)}.xml"
        files = {
            account: ACCOUNT.format(project=self.project, key=self.key),
            "cc_config.xml": CC_CONFIG.format(cpus=self.cpus),
            "global_prefs_override.xml": PREFERENCES,
            "gui_rpc_auth.cfg": f"{self._password}\n",
        }
        for name, text in files.items():
            self.write(name, text)
        self._give(self.directory)
        self.directory.chmod(0o770)

    def write(self, name: str, text: str, mode: int = 0o640) -> Path:
        """Write a file of the client's user below its directory."""
        path = self.directory / name
        for folder in reversed(path.relative_to(self.directory).parents[:-1]):
            place = self.directory / folder
            if not place.exists():
                place.mkdir(mode=0o700)
                self._give(place)
        path.write_text(text)
        path.chmod(mode)
        self._give(path)
        return path

    def opt_in(self, level: str) -> None:
        """Let this computer's user allow tasks up to `level`."""
        self.write("stoilo/optin.toml", f'max_level = "{level}"\n', 0o600)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            InternalError: ``STO-U005`` when it does not.
        """
        for _ in range(STARTS):  # somebody else may take the port before it does
            self._port = _free_port()
            self.process = self._popen()
            if _holds(self._answers, START_S):
                return
            self.kill()
        raise InternalError(
            "STO-U005", f"the client does not answer\n{self.log_tail()}"
        )

    def command(self, *words: str) -> str:
        """Return what ``boinccmd`` says to `words`; raises ``STO-U005``."""
        done = self._ask(*words)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-500:]
            raise InternalError("STO-U005", f"boinccmd {words[0]}: {said}")
        return done.stdout

    def tell_project(self, operation: str) -> None:
        """Let it ``update``, ``reset``, ``suspend``, … the project."""
        self.command("--project", self.project, operation)

    def tell_task(self, name: str, operation: str) -> None:
        """Let it ``suspend``, ``resume`` or ``abort`` a task."""
        self.command("--task", self.project, name, operation)

    def tasks(self) -> tuple[ClientTask, ...]:
        """Return the tasks that it has now."""
        return parse_tasks(self.command("--get_tasks"))

    def messages(self) -> str:
        """Return everything that it has logged."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def state(self) -> str:
        """Return its state file, empty before it has one."""
        try:
            return (self.directory / "client_state.xml").read_text(errors="replace")
        except OSError:  # it is just being replaced
            return ""

    def field(self, tag: str) -> str:
        """Return the text of the first element `tag` of its state, empty without."""
        found = re.search(f"<{tag}>([^<]*)</{tag}>", self.state())
        return found[1] if found else ""

    def log_tail(self) -> str:
        """Return the end of its log."""
        lines = self.messages().splitlines()[-TAIL_LINES:]
        return "\n".join([f"--- {self.directory.name}: client.log", *lines])

    def wait_for(self, condition: Callable[[], _T], seconds: float = WAIT_S) -> _T:
        """Return the first true answer; raises ``STO-U005`` with the log's end."""
        end = time.monotonic() + seconds
        while not (answer := condition()):
            if time.monotonic() > end or not self._runs():
                raise InternalError(
                    "STO-U005", f"not within {seconds} s: {answer!r}\n{self.log_tail()}"
                )
            time.sleep(POLL_S)
        return answer

    def wait_for_message(self, pattern: str, seconds: float = WAIT_S) -> str:
        """Return the first line of its log that `pattern` is found in."""
        line = re.compile(f"^.*(?:{pattern}).*$", re.MULTILINE)
        found = self.wait_for(lambda: line.search(self.messages()), seconds)
        assert found is not None
        return found[0]

    def family(self) -> dict[int, str]:
        """Return the processes below the client: pid → when it was started."""
        if self.process is None:
            return {}
        return descendants(self.process.pid)

    def stop(self) -> None:
        """End it as the system does, and wait for all that it has started."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would; its tasks must notice."""
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        process = self.process
        if process is None:
            return
        family = self.family()
        process.send_signal(sign)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.process = None
        if not _holds(lambda: not alive(family), STOP_S):
            left = alive(family)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise InternalError(
                "STO-U005",
                f"{len(left)} process(es) outlived the client\n{self.log_tail()}",
            )

    def _popen(self) -> subprocess.Popen[bytes]:
        words = ["--dir", str(self.directory), "--gui_rpc_port", str(self._port)]
        words += ["--allow_multiple_clients", "--no_gpus", "--skip_cpu_benchmarks"]
        root = os.geteuid() == 0
        with self.log.open("ab") as log:
            self._give(self.log)
            return subprocess.Popen(
                [BOINC, *words, "--no_info_fetch"],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.directory)},
                user=self.user.pw_uid if root else None,
                group=self.user.pw_gid if root else None,
                extra_groups=[] if root else None,
                umask=0o027,
            )

    def _give(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        place = ["--host", f"127.0.0.1:{self._port}", "--passwd", self._password]
        return subprocess.run(
            [BOINCCMD, *place, *words],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=START_S,
        )

    def _answers(self) -> bool:
        return self._ask("--client_version").returncode == 0 or not self._runs()

    def _runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


def parse_tasks(text: str) -> tuple[ClientTask, ...]:
    """Return the tasks in what ``boinccmd --get_tasks`` prints."""
    found = []
    for block in re.split(r"^\d+\) -+$", text, flags=re.MULTILINE)[1:]:
        pairs = (line.strip().partition(": ") for line in block.splitlines())
        fields = {name: value for name, _, value in pairs if value}
        found.append(ClientTask(fields.get("name", ""), fields))
    return tuple(found)


def _escape(url: str) -> str:
    """Return BOINC's file name for a project's URL."""
    parts = urlsplit(url)
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{parts.netloc}{parts.path}").rstrip("_")


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = made.getsockname()[1]
    return int(port)


def _holds(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
