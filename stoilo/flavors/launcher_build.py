"""The launcher's build: what one program holds, and how it is compiled.

The launcher (`stoilo/executor/launcher/`, C) is built for exactly one verifier: size and
digest of its archive and the digest of its tree are compiled in. The same compiler and C
library give the same bytes, wherever and by whomever it is built.

`describe_launcher` reads the values back out of a built program, so that a release can be
checked to hold a launcher and the verifier that belongs to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.errors import InternalError, TrustError, UsageError

COMPILER = "gcc"
MAX_ARCHIVE_BYTES = 512 * 1024 * 1024
MAX_LAUNCHER_BYTES = 16 * 1024 * 1024
_BUILD_S = 300
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLATFORM = re.compile(r"[a-z0-9_-]{1,32}")
_VERSION = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_ABOUT = re.compile(
    rb"stoilo-launcher/1 ([a-z0-9_-]{1,32}) ([A-Za-z0-9._+-]{1,64}) ([0-9]{1,9})"
    rb" ([0-9a-f]{64}) ([0-9]{1,12}) ([0-9a-f]{64})\n"
)


@dataclass(frozen=True, slots=True)
class LauncherHeld:
    """What a launcher is built for."""

    platform: str  # as in tree manifests, `x86_64-linux`
    version: str  # of the launcher, for people
    serial: int  # rises with every published launcher, from 1
    archive: str  # SHA-256 of the verifier's archive as shipped, hexadecimal
    archive_size: int  # of the same file, bytes
    tree: str  # digest of the verifier's tree, hexadecimal


def launcher_sources() -> Path:
    """Return the directory of the launcher's C sources."""
    return Path(__file__).resolve().parents[1] / "executor" / "launcher"


def render_held(held: LauncherHeld) -> str:
    """Return the text of ``held.h``.

    Raises:
        UsageError: STO-F014, a value is out of its form or bounds.
    """
    wrong = _wrong_fields(held)
    if wrong:
        raise UsageError(
            "STO-F014",
            f"a launcher cannot be built for this {', '.join(wrong)}",
            hint="build the verifier first and pass on what that build wrote",
        )
    return (
        "/* Written by the build: the one verifier that this launcher starts. */\n"
        f'#define HELD_PLATFORM "{held.platform}"\n'
        f'#define HELD_VERSION "{held.version}"\n'
        f'#define HELD_SERIAL "{held.serial}"\n'
        f'#define HELD_ARCHIVE_SHA256 "{held.archive}"\n'
        f"#define HELD_ARCHIVE_SIZE {held.archive_size}ULL\n"
        f'#define HELD_ARCHIVE_SIZE_TEXT "{held.archive_size}"\n'
        f'#define HELD_TREE_SHA256 "{held.tree}"\n'
    )


def _wrong_fields(held: LauncherHeld) -> list[str]:
    """Return the names of the fields that are out of their form or bounds."""
    right = {
        "platform": _PLATFORM.fullmatch(held.platform),
        "version": _VERSION.fullmatch(held.version),
        "serial": 1 <= held.serial < 10**9,
        "archive": _DIGEST.fullmatch(held.archive),
        "archive_size": 0 < held.archive_size <= MAX_ARCHIVE_BYTES,
        "tree": _DIGEST.fullmatch(held.tree),
    }
    return [name for name, fits in right.items() if not fits]


def build_launcher(held: LauncherHeld, output: Path) -> None:
    """Compile the launcher for `held` to the file `output`.

    Raises:
        UsageError: STO-F014, a value of `held` is malformed.
        InternalError: STO-F011 without a C compiler, when it fails.
    """
    text = render_held(held)
    if shutil.which(COMPILER) is None:
        raise InternalError(
            "STO-F011",
            f"there is no {COMPILER} on this machine",
            hint="install it: apt-get install gcc libc6-dev",
        )
    with tempfile.TemporaryDirectory(prefix="launcher-") as folder:
        Path(folder, "held.h").write_text(text, encoding="ascii")
        script = launcher_sources() / "build.sh"
        _compile(["sh", str(script), folder, str(output)], folder)


def _compile(command: list[str], folder: str) -> None:
    """Run the build script in an environment that decides nothing."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": folder}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        timeout=_BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace")[:2000].strip()
        raise InternalError(
            "STO-F011",
            f"the launcher does not build: {said}",
            hint="install gcc and libc6-dev; warnings count as errors",
        )


def describe_launcher(program: bytes) -> LauncherHeld:
    """Read out of a built launcher what it was built for. `program` is not trusted.

    This says what the program claims; that it is an honest build, only its digest and
    those who rebuilt it say.

    Raises:
        TrustError: STO-F006, the bytes hold no such line, or several.
    """
    found = _ABOUT.findall(program) if len(program) <= MAX_LAUNCHER_BYTES else []
    if len(found) == 1:
        held = _read_about([field.decode("ascii") for field in found[0]])
        if not _wrong_fields(held):
            return held
    raise TrustError(
        "STO-F006",
        "the file is not a launcher: it does not say once what it was built for",
        hint="pass the launcher of a release, as it was published",
    )


def _read_about(fields: list[str]) -> LauncherHeld:
    platform, version, serial, archive, size, tree = fields
    return LauncherHeld(platform, version, int(serial), archive, int(size), tree)
