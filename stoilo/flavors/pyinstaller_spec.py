"""The part of a build that runs inside the build's own environment, under PyInstaller.

`stoilo.flavors.freeze` starts it, by a spec file of two lines. It hands PyInstaller the
committed lists of contents instead of letting it follow import statements: so a tree holds
what was reviewed, and a module that is missing ends the build. It uses the standard library
and PyInstaller only.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from PyInstaller import compat
from PyInstaller.building import api, build_main, utils
from PyInstaller.depend import bindepend

from stoilo.flavors.contents import (
    PLATFORM_DATA,
    Contents,
    library_stem,
    parse_contents,
    unite_contents,
)

# A line of PyInstaller's tables: name or destination, source, kind
Entry = tuple[str, str, str]

# Modules that open a library by its name: no program is linked with it
_LOADED = {"pyseccomp": "libseccomp.so.2"}

_OPTIONS = ("hash_seed=0", "X utf8_mode=1")
_LICENCE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)
_EXTENSIONS = importlib.machinery.EXTENSION_SUFFIXES
_LICENCE_NAME = 80
_PLAIN = re.compile(r"[^A-Za-z0-9._+-]")


def freeze(plan_file: str) -> None:
    """Build the tree that the plan describes into its directory."""
    plan: dict[str, Any] = json.loads(Path(plan_file).read_text("utf-8"))
    lists = [Path(file).read_text("ascii") for file in plan["contents"]]
    contents = unite_contents(map(parse_contents, lists))
    modules = sorted({*contents.modules, *plan["together"]})
    work = Path(plan["work"])
    pure, extensions = _find_modules(modules, Path(plan["tools"]))
    early = [e for e in pure if e[0].partition(".")[0] in compat.PY3_BASE_MODULES]
    zipped = work / "base_library.zip"
    utils.create_base_library_zip(str(zipped), early, None)
    binaries = [*extensions, *_find_libraries(extensions, contents, work)]
    site = Path(sysconfig.get_path("purelib"))
    wheels = _find_wheels(site, [*pure, *extensions])
    datas = [
        (zipped.name, str(zipped), "DATA"),
        *_find_sources(pure, contents),
        *_find_data((*contents.data, *plan["extra"]), (Path(plan["root"]), site)),
        *_find_licences(site, wheels),
    ]
    archive = api.PYZ([entry for entry in pure if entry not in early])
    boot = Path(build_main.__file__).parents[1] / "loader" / "pyiboot01_bootstrap.py"
    scripts = [
        ("pyiboot01_bootstrap", str(boot), "PYSOURCE"),
        (Path(plan["entry"]).stem, plan["entry"], "PYSOURCE"),
    ]
    program = api.EXE(
        archive,
        scripts,
        [(option, None, "OPTION") for option in _OPTIONS],
        exclude_binaries=True,
        name=plan["program"],
        contents_directory="_internal",
        upx=False,
        strip=False,
        console=True,
    )
    api.COLLECT(program, binaries, datas, name=plan["part"], strip=False, upx=False)
    notes = {"libraries": _host_libraries(binaries, work), "wheels": wheels}
    notes["python"] = sys.version.partition(" ")[0]
    Path(plan["notes"]).write_text(json.dumps(notes, sort_keys=True), "utf-8")


def _host_libraries(binaries: Sequence[Entry], work: Path) -> dict[str, str]:
    """Return which libraries came from the build host, and from which file of it."""
    python = bindepend.get_python_library_path()
    environment = sys.prefix + os.sep
    return {
        where: python if Path(source).parent == work else source
        for where, source, kind in binaries
        if kind == "BINARY" and not source.startswith(environment)
    }


def _find_wheels(site: Path, modules: Sequence[Entry]) -> list[str]:
    """Return the ``.dist-info`` folders of the wheels that `modules` come from."""
    used = {
        Path(source).relative_to(site).as_posix()
        for _, source, _ in modules
        if Path(source).is_relative_to(site)
    }
    records = sorted(site.glob("*.dist-info/RECORD"))
    lines = {record: record.read_text("utf-8").splitlines() for record in records}
    return [
        record.parent.name
        for record in records
        if used & {line.partition(",")[0] for line in lines[record]}
    ]


def _find_licences(site: Path, wheels: Sequence[str]) -> Iterator[Entry]:
    """Yield the licence texts of the wheels, the only part of their metadata that is kept."""
    for wheel in wheels:
        name = wheel.partition("-")[0]
        for path in sorted((site / wheel).rglob("*")):
            if path.is_file() and _LICENCE.search(path.name):
                inner = path.relative_to(site / wheel).as_posix()
                yield f"licences/{name}/{_short_name(inner)}", str(path), "DATA"


def _short_name(path: str) -> str:
    """Return one file name for a path, which a tree's manifest takes."""
    plain = _PLAIN.sub("-", path).lstrip("-")
    if len(plain) <= _LICENCE_NAME:
        return plain
    mark = hashlib.sha256(path.encode()).hexdigest()[:12]
    return f"{plain[: _LICENCE_NAME - len(mark) - 1]}-{mark}"


def _find_modules(names: Sequence[str], tools: Path) -> tuple[list[Entry], list[Entry]]:
    """Return the pure modules and the extension modules; ends where one is missing."""
    pure: list[Entry] = []
    extensions: list[Entry] = []
    missing = []
    own = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]  # noqa: SLF001
    for name in (own if name == PLATFORM_DATA else name for name in names):
        if name in sys.builtin_module_names:
            continue
        origin = _locate(name)
        if origin is None or origin.is_relative_to(
            tools
        ):  # no part of the build itself
            missing.append(name)
        elif origin.is_dir():
            pure.append((name, "-", "PYMODULE"))
        elif origin.suffix == ".so":
            where = utils.destination_name_for_extension(name, str(origin), "EXTENSION")
            extensions.append((where, str(origin), "EXTENSION"))
        else:
            pure.append((name, str(origin), "PYMODULE"))
    if missing:
        _stop(f"missing modules: {', '.join(missing)}")
    return pure, extensions


def _locate(name: str) -> Path | None:
    """Return the file of a module, a namespace package's folder, or None.

    Nothing is imported, and no finder that a package has installed is asked.
    """
    *parents, last = name.split(".")
    places = [Path(entry) for entry in sys.path if entry]
    for parent in parents:
        places = [place / parent for place in places if (place / parent).is_dir()]
    for place in places:
        files = [place / last / "__init__.py"]
        files += [place / f"{last}{end}" for end in (*_EXTENSIONS, ".py")]
        for file in files:
            if file.is_file():
                return file
    return next((p / last for p in places if (p / last).is_dir()), None)


def _find_libraries(
    extensions: list[Entry], contents: Contents, work: Path
) -> Iterator[Entry]:
    """Yield the shared libraries that are linked in; ends where one is not listed."""
    python = Path(bindepend.get_python_library_path())
    found = build_main.find_binary_dependencies(
        [(python.name, str(python), "BINARY"), *extensions], [], set()
    )
    found += _find_loaded(contents)
    allowed, unlisted = set(contents.libraries), []
    own = [(python.name, str(_strip(python, work)), "BINARY")]
    linked = (e for e in found if e[2] == "BINARY" and e[1] != str(python))
    for where, source, kind in (
        *own,
        *linked,
    ):  # run paths do without PyInstaller's links
        if library_stem(Path(where).name) not in allowed:
            unlisted.append(where)
        yield where, source, kind
    if unlisted:
        _stop(f"libraries outside the list: {', '.join(sorted(unlisted))}")


def _find_loaded(contents: Contents) -> list[Entry]:
    """Return the libraries that a module opens by name when it is imported."""
    names = [name for module, name in _LOADED.items() if module in contents.modules]
    found = [(name, bindepend.resolve_library_path(name)) for name in names]
    if missing := [name for name, source in found if source is None]:
        _stop(f"missing libraries: {', '.join(missing)}")
    return [(name, str(source), "BINARY") for name, source in found]


def _strip(library: Path, work: Path) -> Path:
    """Return a copy of Python's own library without what debuggers alone read."""
    copy = work / library.name
    shutil.copyfile(library, copy)
    subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)  # noqa: S607
    return copy


def _find_sources(pure: list[Entry], contents: Contents) -> Iterator[Entry]:
    """Yield the source files of the modules that are read as text."""
    wanted = set(contents.sources)
    for name, source, _ in pure:
        if name in wanted:
            file = name.replace(".", "/")
            is_package = Path(source).name == "__init__.py"
            yield f"{file}/__init__.py" if is_package else f"{file}.py", source, "DATA"


def _find_data(paths: Sequence[str], roots: Sequence[Path]) -> Iterator[Entry]:
    """Yield the listed files below our source, or below the installed wheels."""
    for path in paths:
        found = next((root / path for root in roots if (root / path).is_file()), None)
        if found is None:
            _stop(f"missing data: {path}")
        yield path, str(found), "DATA"


def _stop(reason: str) -> NoReturn:
    """End the build; the code is read from the last line of its output."""
    sys.exit(f"{reason} [STO-F012]")
