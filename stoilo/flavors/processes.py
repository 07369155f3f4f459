"""The programs that a build starts: with which environment, and what is said when they fail."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stoilo.core.errors import InternalError

EPOCH = "315532800"
"""The one time that build programs are told, s since 1970."""
_CODE = re.compile(r" \[(STO-F\d{3})\]$")  # our own program says which error it is


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would lead Python elsewhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "_PYI", "PYINSTALLER"))
    }


def build_environment(work: Path, path: Sequence[Path]) -> dict[str, str]:
    """Return the whole environment of a freezing program: the same on every machine.

    Args:
        work: the build's own directory; it is the home and holds the caches.
        path: where modules are found.
    """
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(work),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": EPOCH,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in path),
        # Bytecode that lies about would not be marshalled as freshly compiled one is.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
        "PYINSTALLER_CONFIG_DIR": str(work / "configuration"),
    }


def pip_command(python: Path) -> list[str]:
    """Return the words that run this interpreter's pip for the environment of `python`.

    Raises:
        InternalError: ``STO-F010``, there is no pip here.
    """
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise InternalError(
            "STO-F010",
            "a build installs its wheels with pip, and there is none here",
            hint="install pip into the environment that stoilo runs in",
        )
    return [sys.executable, str(Path(spec.origin).parent), "--python", str(python)]


def run_logged(
    command: Sequence[str], log: Path, code: str, what: str, env: Mapping[str, str]
) -> None:
    """Run `command`, its output appended to `log`; raise `code` when it fails."""
    with log.open("ab") as output:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=log.parent,
            check=False,
        )
    if done.returncode:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        named, said = _CODE.search(last), _CODE.sub("", last)
        raise InternalError(
            named[1] if named else code,
            f"{what} failed (status {done.returncode}): {said[:400]}",
            hint=f"all of its output is in {log}",
        )
