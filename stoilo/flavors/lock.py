"""Locks: exactly which wheels a frozen part is made of, one file for each platform.

A lock is a requirements file that pip takes with ``--require-hashes``: one wheel a line,
each with the one digest that was resolved. The first line says what it is for; there are
no index addresses in it, so that everybody may fetch from where they trust.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stoilo.core.digests import Digest
from stoilo.core.errors import InternalError, UsageError

LOCK_BYTES = 1 << 20  # Most bytes of a lock
_HEAD = re.compile(
    r"# stoilo-lock/1 ([a-z0-9-]{1,32}) ([a-z0-9_]+-linux) python (3\.\d+)"
)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,98}"
_WHEEL = re.compile(
    rf"({_NAME})==({_VERSION}) --hash=sha256:([0-9a-f]{{64}})  # ([A-Za-z0-9._+-]+\.whl)"
)


@dataclass(frozen=True, slots=True, order=True)
class LockedWheel:
    """One wheel: normalised name, version, SHA-256 of the file, the file's name."""

    name: str
    version: str
    digest: Digest
    file: str


@dataclass(frozen=True, slots=True)
class Lock:
    """All wheels of a part; sorted by name."""

    part: str
    platform: str
    python: str
    wheels: tuple[LockedWheel, ...]


def normal_name(name: str) -> str:
    """Return a distribution's name in the one form in which names compare.

    Source: Python packaging, name normalisation.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def base_requirements(kind: str) -> tuple[str, ...]:
    """Return the pinned requirements of ``runtime``, ``verifier`` or ``tools``."""
    page = resources.files("stoilo.flavors") / "bases.toml"
    return tuple(tomllib.loads(page.read_text("utf-8"))[kind]["requirements"])


def render_lock(lock: Lock) -> bytes:
    """Return the file of `lock`."""
    lines = [f"# stoilo-lock/1 {lock.part} {lock.platform} python {lock.python}\n"]
    lines += [
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.digest}  # {wheel.file}\n"
        for wheel in lock.wheels
    ]
    return "".join(lines).encode("ascii")


def parse_lock(data: bytes) -> Lock:
    """Parse untrusted lock bytes or raise ``STO-F007``."""
    if len(data) > LOCK_BYTES:
        raise _broken(0, f"it is larger than {LOCK_BYTES:,} bytes")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise _broken(0, "it is not plain ASCII text") from error
    if not text.endswith("\n"):
        raise _broken(0, "its last line has no end")
    head, *lines = text[:-1].split("\n")
    match = _HEAD.fullmatch(head)
    if match is None:
        raise _broken(1, "it is not `# stoilo-lock/1 part platform python 3.x`")
    wheels = tuple(_parse_wheel(line, number) for number, line in enumerate(lines, 2))
    names = [wheel.name for wheel in wheels]
    if names != sorted(set(names)):
        raise _broken(0, "distributions must be sorted, each once")
    return Lock(match[1], match[2], match[3], wheels)


def _parse_wheel(line: str, number: int) -> LockedWheel:
    match = _WHEEL.fullmatch(line)
    if match is None:
        raise _broken(number, "it is not `name==version --hash=sha256:…  # file.whl`")
    if match[1] != normal_name(match[1]):
        raise _broken(number, f"the name {match[1]!r} is not in its normal form")
    return LockedWheel(match[1], match[2], Digest(match[3]), match[4])


def _broken(number: int, reason: str) -> UsageError:
    where = f"line {number}: " if number else ""
    return UsageError("STO-F007", f"the lock is broken: {where}{reason}")


def load_lock(part: str, platform: str) -> bytes:
    """Return the committed lock of `part`, or raise ``STO-F007``."""
    folder = resources.files("stoilo.flavors") / "locks"
    page = folder / f"{part}.{platform}.txt"
    if not page.is_file():
        raise UsageError(
            "STO-F007",
            f"there is no lock for {part[:40]!r} on {platform}",
            hint=f"make one there: stoilo flavor lock {part[:40]}",
        )
    return page.read_bytes()


def check_lock(lock: Lock, requirements: Iterable[str], python: str) -> None:
    """Raise ``STO-F007`` unless `lock` holds every pinned requirement, for `python`."""
    held = {f"{wheel.name}=={wheel.version.partition('+')[0]}" for wheel in lock.wheels}
    for one in requirements:
        name, _, version = one.partition("==")
        if f"{normal_name(name)}=={version}" not in held:
            raise _outdated(lock, f"it does not hold {one}")
    if lock.python != python:
        raise _outdated(lock, f"it is for Python {lock.python}, not {python}")


def _outdated(lock: Lock, reason: str) -> UsageError:
    return UsageError(
        "STO-F007",
        f"the lock of {lock.part} is out of date: {reason}",
        hint=f"resolve it again: stoilo flavor lock {lock.part}",
    )


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would lead Python elsewhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "_PYI", "PYINSTALLER"))
    }


def pip_command(python: Path) -> list[str]:
    """Return the words that run this interpreter's pip for the environment of `python`.

    Raises:
        InternalError: ``STO-F011``, there is no pip here.
    """
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise InternalError(
            "STO-F011",
            "a build installs its wheels with pip, and there is none here",
            hint="install pip into the environment that stoilo runs in",
        )
    return [sys.executable, str(Path(spec.origin).parent), "--python", str(python)]


def resolve_lock(
    part: str, platform: str, requirements: Sequence[str], python: Path
) -> Lock:
    """Let pip choose wheels for pinned `requirements` and what they need.

    Args:
        part: whose lock it is.
        platform: this machine's; pip chooses for the machine that it runs on.
        requirements: ``name==version``.
        python: the interpreter that the part will be frozen with.

    Raises:
        InternalError: ``STO-F011`` pip does not run, or finds no wheel for something.
    """
    command = [*pip_command(python), "install"]
    options = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*command, *options, "--only-binary", ":all:", *requirements],
        capture_output=True,
        env=clean_environment(),
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InternalError("STO-F011", f"pip could not resolve it: {' '.join(last)}")
    report = json.loads(done.stdout)
    wheels = sorted(_chosen(entry) for entry in report["install"])
    version = ".".join(report["environment"]["python_version"].split(".")[:2])
    return Lock(part, platform, version, tuple(wheels))


def _chosen(entry: dict[str, dict[str, object]]) -> LockedWheel:
    """Return a wheel out of pip's own report."""
    download: dict[str, object] = entry["download_info"]
    archive = download["archive_info"]
    hashes = archive["hashes"] if isinstance(archive, dict) else {}
    path = unquote(urlsplit(str(download["url"])).path)
    return LockedWheel(
        normal_name(str(entry["metadata"]["name"])),
        str(entry["metadata"]["version"]),
        Digest(hashes["sha256"]),
        path.rpartition("/")[2],
    )
