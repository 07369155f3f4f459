"""One part frozen: its wheels installed apart, our source beside them, PyInstaller's tree.

A build happens in a directory of its own, from nothing: an interpreter's environment
without packages, the locked wheels in it, the locked build tools outside it, a copy of
this package's source, and programs started with a fixed environment. So two builds from
the same commit, lock and base system are byte-equal, wherever they are made and by whom.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.libraries import Library, preloaded_together
from stoilo.flavors.contents import load_contents
from stoilo.flavors.described import check_installed
from stoilo.flavors.lock import clean_environment, load_lock, parse_lock, pip_command

_SPEC = "from stoilo.flavors.pyinstaller_spec import freeze\nfreeze({plan!r})\n"
PACKAGE = Path(__file__).resolve().parents[1]
_EPOCH = "315532800"  # the one time that build programs are told, s since 1970
_CODE = re.compile(r" \[(STO-F\d{3})\]$")  # our own program says which error it is
_TOOLS = ("objcopy", "strip")  # of the Debian package binutils


@dataclass(frozen=True, slots=True)
class FreezePlan:
    """What to freeze."""

    part: str  # `verifier` or a flavor's name
    program: str  # name of the program in the tree
    entry: str  # our own module file that the program runs, below the package
    contents: tuple[str, ...]  # names of the committed lists of contents
    lock: bytes  # the lock file's bytes
    python: str  # minor version of the interpreter, `3.11`
    # further files of the package, by path below the import root
    extra: Mapping[str, bytes] = field(default_factory=dict)
    package: Path = PACKAGE  # directory of the source that is frozen; our own
    libraries: tuple[Library, ...] = ()  # described ones of a flavor, by name


@dataclass(frozen=True, slots=True)
class FrozenPart:
    """A built tree."""

    tree: Path  # its directory
    site: Path  # where the wheels are installed, for their licences
    # `.dist-info` folders there of the wheels that are in the tree
    wheels: tuple[str, ...]
    # host libraries in it: path in the tree → file on the build host
    libraries: Mapping[str, str]
    python: str  # exact version of the interpreter


def base_python() -> Path:
    """Return the interpreter that environments here are made from."""
    return Path(getattr(sys, "_base_executable", sys.executable))


def freeze_part(plan: FreezePlan, work: Path, python: Path | None = None) -> FrozenPart:
    """Freeze a part in the empty directory `work`.

    Args:
        plan: what to freeze.
        work: made when it is missing; it keeps logs and all intermediate files.
        python: interpreter to freeze with; default: `base_python`.

    Raises:
        UsageError: ``STO-F007`` about the lock, ``STO-U003`` `work` is
            not empty.
        PolicyRefusal: ``STO-P001`` about a library.
        InternalError: ``STO-F011`` wheels could not be installed, PyInstaller
            failed, ``STO-F012`` something is missing from the tree or from its list,
            ``STO-F011`` a program or library of the system is missing.
    """
    python = python or base_python()
    _check_host(plan, python)
    _check_lock(plan)
    for name in plan.contents:
        load_contents(name)
    work = make_empty(work)
    log = work / "build.log"
    environment, tools = _install(plan, work, python, log)
    source = _copy_source(plan, work)
    checked = check_installed(plan.libraries, environment / "bin" / "python", source)
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in checked)
    run_logged(
        [
            str(environment / "bin" / "python"),
            "-s",
            *("-m", "PyInstaller", "--clean", "--noconfirm"),
            *("--distpath", str(work / "dist"), "--workpath", str(work / "build")),
            str(_write_spec(plan, work, source)),
        ],
        log,
        "STO-F011",
        f"freezing {plan.part}",
        build_environment(work, (source, tools)),
    )
    tree = work / "dist" / plan.part
    _normalise_modes(tree, plan.program)
    notes = json.loads((work / "notes.json").read_text("utf-8"))
    (site,) = (environment / "lib").glob("python3.*/site-packages")
    wheels = tuple(notes["wheels"])
    return FrozenPart(tree, site, wheels, notes["libraries"], notes["python"])


def make_empty(directory: Path) -> Path:
    """Make `directory` (or take it when it is empty), or raise ``STO-U003``."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UsageError(
            "STO-U003",
            f"{directory} is not empty",
            hint="name a new directory: a build never goes on from another",
        )
    return directory


def _check_host(plan: FreezePlan, python: Path) -> None:
    """Raise ``STO-F011`` when a system program or the right interpreter is missing."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        raise InternalError(
            "STO-F011",
            f"a build needs {' and '.join(missing)}",
            hint="install the package binutils",
        )
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", question], capture_output=True, check=False
        )
        version = done.stdout.decode().strip()
    except OSError:
        version = "missing"
    if version != plan.python:
        raise InternalError(
            "STO-F011",
            f"{plan.part} is for Python {plan.python}, and {python} is {version}",
            hint="name another interpreter with --python",
        )


def _check_lock(plan: FreezePlan) -> None:
    lock = parse_lock(plan.lock)
    if (lock.platform, lock.python) != (platform_name(), plan.python):
        raise UsageError(
            "STO-F007",
            f"the lock of {plan.part} is for {lock.platform}, Python {lock.python}",
            hint="resolve it on this machine with `stoilo flavor lock`",
        )


def _install(
    plan: FreezePlan, work: Path, python: Path, log: Path
) -> tuple[Path, Path]:
    """Make the environment with the part's wheels; put the tools into another folder."""
    environment, tools = work / "environment", work / "tools"
    run_logged(
        [str(python), "-I", "-m", "venv", "--without-pip", str(environment)],
        log,
        "STO-F011",
        "making an environment",
        clean_environment(),
    )
    locks = {"part": plan.lock, "tools": load_lock("tools", platform_name())}
    for name, data in locks.items():
        file = work / f"{name}.txt"
        file.write_bytes(data)
        where = ["--target", str(tools)] if name == "tools" else []
        run_logged(
            [
                *pip_command(environment / "bin" / "python"),
                *("install", "--no-deps", "--no-compile", "--require-hashes"),
                *("--only-binary", ":all:", *where, "--requirement", str(file)),
            ],
            log,
            "STO-F011",
            f"installing the locked wheels ({name})",
            clean_environment(),
        )
    return environment, tools


def _copy_source(plan: FreezePlan, work: Path) -> Path:
    """Copy this package's source: what is frozen is what was there when it began."""
    source = work / "source"
    shutil.copytree(
        plan.package, source / "stoilo", ignore=shutil.ignore_patterns("__pycache__")
    )
    for path, data in plan.extra.items():
        (source / path).write_bytes(data)
    return source


def _needed_together(libraries: tuple[Library, ...]) -> set[str]:
    """Return the modules that libraries preload because of each other, and parents."""
    names = {name for one in libraries for name in preloaded_together(one, libraries)}
    parts = [name.split(".") for name in names]
    return {".".join(one[:end]) for one in parts for end in range(1, len(one) + 1)}


def _write_spec(plan: FreezePlan, work: Path, source: Path) -> Path:
    """Write the spec file and the plan that it names."""
    (work / "build").mkdir()
    facts = {
        "part": plan.part,
        "program": plan.program,
        "entry": str(source / plan.entry),
        "contents": [
            str(source / f"stoilo/flavors/contents/{name}.txt")
            for name in plan.contents
        ],
        "together": sorted(_needed_together(plan.libraries)),
        "extra": sorted(plan.extra),
        "root": str(source),
        "tools": str(work / "tools"),
        "work": str(work / "build"),
        "notes": str(work / "notes.json"),
    }
    file = work / "plan.json"
    file.write_text(json.dumps(facts), "utf-8")
    spec = work / f"{plan.part}.spec"
    spec.write_text(_SPEC.format(plan=str(file)), "utf-8")
    return spec


def _normalise_modes(tree: Path, program: str) -> None:
    """Give each file one of two modes: the program may be run, nothing else."""
    for folder, _, files in os.walk(tree):
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if path == tree / program else 0o644)


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
        "SOURCE_DATE_EPOCH": _EPOCH,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in path),
        # Bytecode that lies about would not be marshalled as freshly compiled one is.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
        "PYINSTALLER_CONFIG_DIR": str(work / "configuration"),
    }


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
