"""A BOINC data directory on disk, as a client lays it out, and a verifier in its slot.

`run_in_slot` is the seam that frozen verifiers lack: it takes the built file as a value,
and runs tasks in what is installed instead of a frozen tree.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.boinc_slot import INIT_FILE, SlotInfo, render_soft_link
from stoilo.executor.verifier.host_verifier import Runtimes
from stoilo.executor.verifier.installation import Home
from stoilo.executor.verifier.main import Surroundings, run_verifier
from stoilo.executor.verifier.targets import Floors
from stoilo.executor.verifier.trust import Built
from stoilo.executor.verifier.workunit import ResultFile, parse_result
from stoilo.executor.volunteer.installed import InstalledRuntimes

__all__ = ["BoincData", "Ended", "built_for", "installed_runtimes", "run_in_slot"]

INIT = """<app_init_data>
<major_version>7</major_version>
<app_name>{app}</app_name>
<project_preferences>
{preferences}
</project_preferences>
<user_name>somebody</user_name>
<wu_name>{workunit}</wu_name>
<result_name>{result}</result_name>
<slot>{slot}</slot>
{client}
<host_info><d_total>100000000000.000000</d_total></host_info>
<global_preferences><disk_max_used_gb>{disk_gb}</disk_max_used_gb></global_preferences>
</app_init_data>
"""


def built_for(
    root: bytes,
    *,
    origin: str = "project.example/log",
    serial: int = 1,
    development: bool = True,
    floors: Floors | None = None,
) -> Built:
    """Return what a verifier for this root would have been built with."""
    return Built(
        format="stoilo-built/1",
        part="verifier",
        platform=platform_name(),
        version="0.2.0",
        serial=serial,
        commit="",
        root=base64.b64encode(root).decode(),
        origin=origin,
        development=development,
        floors=floors or Floors(),
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a verifier ended: exit code, what it wrote."""

    code: int
    out: str
    err: str


class BoincData:
    """A client's data directory with one project and its slots.

    Args:
        directory: made if needed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.project = self.directory / "projects" / "127.0.0.1_stoilo"
        self.project.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        """Where the verifier keeps what is its own."""
        return self.directory / "stoilo"

    def slot(
        self,
        files: Sequence[tuple[str, bytes]],
        *,
        number: int = 0,
        app: str = "pure",
        workunit: str = "task-1_1",
        preferences: str = "",
        disk_gb: str = "100.000000",
        client: str = "",
    ) -> Path:
        """Return a new slot whose inputs lie in the project's directory."""
        slot = self.directory / "slots" / str(number)
        slot.mkdir(parents=True)
        result = f"{workunit}_0"
        text = INIT.format(
            app=app,
            workunit=workunit,
            result=result,
            slot=number,
            preferences=preferences,
            disk_gb=disk_gb,
            client=client,
        )
        (slot / INIT_FILE).write_text(text)
        for name, data in files:
            (self.project / f"{workunit}_{name}").write_bytes(data)
            self._link(slot, name, f"{workunit}_{name}")
        self._link(slot, "result", f"{result}_out")
        return slot

    def result(self, workunit: str = "task-1_1") -> ResultFile:
        """Return the result file that a verifier wrote."""
        return parse_result((self.project / f"{workunit}_0_out").read_bytes())

    def _link(self, slot: Path, name: str, target: str) -> None:
        """Make BOINC's soft-link file."""
        text = render_soft_link(f"../../projects/{self.project.name}/{target}")
        (slot / name).write_bytes(text)


def installed_runtimes(home: Home, built: Built, info: SlotInfo) -> Runtimes:
    """Return what is installed here, in place of frozen trees."""
    del home, built, info
    return InstalledRuntimes()


def run_in_slot(
    slot: Path,
    built: Built,
    *words: str,
    clock: Callable[[], float],
    runtimes: Callable[[Home, Built, SlotInfo], Runtimes] | None = installed_runtimes,
    opt_in_files: tuple[Path, ...] = (),
) -> Ended:
    """Run the verifier in a slot as its launcher would; its errors are raised."""
    out, err = io.StringIO(), io.StringIO()
    around = Surroundings(
        built,
        slot,
        opt_in_files=opt_in_files,
        clock=clock,
        runtimes=runtimes,
        out=out,
        err=err,
    )
    code = run_verifier(words, around)
    return Ended(code, out.getvalue(), err.getvalue())
