"""`describe`: a draft made in a child, completed with what a first call imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stoilo.core.errors import UsageError
from stoilo.core.libraries import Library, parse_library
from stoilo.flavors.describing.check import search_path, try_first_calls
from stoilo.flavors.describing.draft import Draft, DraftRequest, render_draft
from stoilo.sandbox.process.supervisor import zygote_environment

_ROUNDS = 3
"""How often a draft is tried for imports that another one hid."""

_DRAFT = "stoilo.flavors.describing.draft"


def describe_package(
    package: str, modules: Sequence[str] = (), paths: Sequence[Path] = ()
) -> str:
    """Return the text of a library's file for an installed package.

    Args:
        package: its import name.
        modules: dotted; the package's public ones where none is given.
        paths: folders that packages are found in, before the interpreter's own.

    Raises:
        UsageError: ``STO-S030``, it or one of the modules cannot be imported.
    """
    foreign = [one for one in modules if one.partition(".")[0] != package]
    if foreign or not package.isidentifier():
        raise UsageError("STO-S030", f"not of one package: {(*foreign, package)[0]!r}")
    draft = _ask(DraftRequest(package, tuple(modules)), paths)
    preload: list[str] = []
    for _ in range(_ROUNDS):
        library = parse_library(render_draft(draft, preload).encode())
        late, failed = _try(library, paths)
        if not set(late) - set(preload):
            break
        preload = sorted({*preload, *late})
    return render_draft(draft, preload, failed)


def _try(
    library: Library, paths: Sequence[Path]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return late imports and failures; with open classes if it needs what they close."""
    late, failed = try_first_calls(library, paths)
    if not failed or not library.members:
        return late, failed
    opened = msgspec.structs.replace(library, members={})
    late, more = try_first_calls(opened, paths)
    return late, tuple(dict.fromkeys((*failed, *more)))


def _ask(request: DraftRequest, paths: Sequence[Path]) -> Draft:
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-m", _DRAFT],
        input=msgspec.json.encode(request),
        capture_output=True,
        env=zygote_environment() | search_path(paths),
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = " ".join(last)[:200] or f"status {done.returncode}"
        raise UsageError("STO-S030", f"{request.package} cannot be imported: {why}")
    draft = msgspec.json.decode(done.stdout, type=Draft)
    if not draft.modules:
        raise UsageError("STO-S030", f"nothing can be imported: {draft.failed[0]}")
    return draft
