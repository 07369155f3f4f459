"""The interpreter that BOINC's daemons run our scripts by: their user must be able to.

BOINC takes "could not be run" (126, 127) from a validator's script for "this result is
wrong", and the interpreter that runs the installation may lie below somebody's home. The
scripts need the standard library alone, so the system's own comes first; each is tried
with the rights of the project's owner before it is chosen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.server.engines.stock.installation.owner import Owner

__all__ = ["INTERPRETERS", "find_interpreter", "try_interpreter"]

INTERPRETERS: Final = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    str(Path(sys.executable).resolve()),
)
TRIAL_S: Final = 60.0
_TRIAL: Final = "import os, socket, sys, time; sys.exit(sys.version_info < (3, 9))"


def find_interpreter(owner: Owner, candidates: Sequence[str] = INTERPRETERS) -> str:
    """Return the first of `candidates` that the project's owner can run.

    Raises:
        UsageError: ``STO-B100`` he can run none of them.
    """
    said = []
    for name in candidates:
        trouble = try_interpreter([name, "-IS"], owner)
        if not trouble:
            return name
        said.append(f"{name}: {trouble}")
    raise UsageError("STO-B100", f"as user {owner.uid}: {'; '.join(said)}")


def try_interpreter(words: Sequence[str], owner: Owner) -> str:
    """Run an interpreter for a moment as the owner; returns why it fails, or nothing.

    Whoever is not root tries it as himself.
    """
    another = owner if owner.is_another else None
    try:
        done = subprocess.run(
            [*words, "-c", _TRIAL],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=TRIAL_S,
            user=another.uid if another else None,
            group=another.gid if another else None,
            extra_groups=another.groups if another else None,
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "it is no name of a file"
    status = done.returncode
    return f"it ends with {status} and is no Python 3.9 or later" if status else ""
