"""BOINC's ``status``, played: which of a project's daemons run."""

from __future__ import annotations

import re
import socket
from pathlib import Path

__all__ = ["main"]


def main(_arguments: list[str], root: Path) -> int:
    """Run the tool in a project; returns its exit status."""
    stopped = (root / "stop_daemons").exists()
    print(f"BOINC is {'DISABLED' if stopped else 'ENABLED'}\n")
    print("DAEMON  pid  status      lockfile disabled  commandline")
    folder = root / f"pid_{socket.gethostname().partition('.')[0]}"
    daemons = re.findall(r"<daemon>(.*?)</daemon>", _config(root), re.DOTALL)
    for number, daemon in enumerate(daemons, 1):
        command = " ".join(
            re.findall(r"<cmd>(.*?)</cmd>", daemon, re.DOTALL)[0].split()
        )
        named = re.findall(r"<pid_file>(.*?)</pid_file>", daemon)
        path = folder / (named[0] if named else f"{command.split()[0]}.pid")
        pid = path.read_text().strip() if path.exists() else "0"
        state = "running" if Path(f"/proc/{pid}").is_dir() else "NOT RUNNING"
        print(f"  {number}  {pid:>6}  {state:<11}  UNLOCKED  no  {command}")
    return 0


def _config(root: Path) -> str:
    return (root / "config.xml").read_text("latin-1")
