"""`stoilo boinc programs`: what BOINC clients run, for a project with a development root."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from stoilo.cli.flavor.freezing import find_manifest
from stoilo.cli.output import DATA, JSON, now, say
from stoilo.core.errors import UsageError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.levels import level_files
from stoilo.executor.verifier.trust import installed_release
from stoilo.server.config import load_config
from stoilo.server.data_directory import claim_directory
from stoilo.server.release.flavors import installed_flavors
from stoilo.signer.development.changes import (
    next_serial,
    project_origin,
    publish_programs,
    publishes_flavors,
)
from stoilo.signer.development.root import create_development_root
from stoilo.signer.part_building import build_parts, built_file


@click.command()
@DATA
@click.option(
    "--flavor",
    "flavors",
    multiple=True,
    help="Also freeze this flavor; may be given again. Default: pure.",
)
@click.option(
    "--from",
    "build",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Output of `stoilo release build` for this root, instead of building.",
)
@click.option("--yes", is_flag=True, help="Do not ask about what is switched off.")
@click.option(
    "--new", "is_new", is_flag=True, help="Make the development root if there is none."
)
@JSON
def programs(
    data: Path,
    flavors: tuple[str, ...],
    build: Path | None,
    *,
    yes: bool,
    is_new: bool,
    as_json: bool,
) -> None:
    """Build, sign and publish launcher, verifier and flavors of a development root.

    BOINC clients get them from the running server, or from the next `stoilo up`. Keys of
    a development root lie on this machine and protect nobody else; for a released project
    people sign in a ceremony: `stoilo release request`.

    Once flavors are published, tasks can name no others: what that switches off is named
    and asked about before anything is built.

    Example: stoilo boinc programs --data project --flavor pure --flavor numeric
    """
    if build is not None and flavors:
        raise UsageError("STO-U003", "--flavor is for building; --from names a build")
    if is_new:
        _make_root(data)
    _confirm(
        data / "keys", _flavors_of(build) if build else flavors or ("pure",), yes=yes
    )
    if build is not None:
        made = publish_programs(data / "keys", build, now())
    else:
        with tempfile.TemporaryDirectory(prefix="stoilo-programs-") as folder:
            _build(data / "keys", Path(folder) / "build", flavors or ("pure",))
            made = publish_programs(data / "keys", Path(folder) / "build", now())
    text = "\n".join(made.targets)
    say(
        {"targets": made.targets, "signed": made.signed},
        f"{text}\nPublished; BOINC clients get them with their next work.",
        as_json=as_json,
    )


def _flavors_of(build: Path | None) -> tuple[str, ...]:
    """Return the names of the flavors in a finished build."""
    found = () if build is None else build.glob("flavor/*/")
    return tuple(sorted(one.name for one in found))


def _confirm(directory: Path, named: Sequence[str], *, yes: bool) -> None:
    """Name what publishing `named` flavors switches off and ask; raises ``STO-U003``."""
    if not named or publishes_flavors(directory):
        return
    closed = [one for one in installed_flavors() if one.name not in named]
    if not closed:
        return
    off = ", ".join(one.says() for one in closed)
    text = f"from then on no task can use what is not among {', '.join(named)}: {off}"
    if yes:
        click.echo(text, err=True)
    elif not sys.stdin.isatty():
        hint = "add --flavor for those that are wanted, and --yes"
        raise UsageError("STO-U003", text, hint=hint)
    else:
        click.confirm(f"{text}. Go on?", abort=True, err=True)


def _make_root(data: Path) -> None:
    """Make the root that `stoilo up` would make at its first start, unless it is there.

    A stock project wants its programs before the server starts on it.
    """
    if (data / "keys" / "root.json").exists():
        return
    home = claim_directory(data)
    with home.lock:
        config, _ = load_config(data, {}, os.environ)
        create_development_root(
            home.part("keys"),
            config.origin,
            now(),
            installed=installed_release(),
            level_files=level_files(),
        )


def _build(directory: Path, output: Path, flavors: tuple[str, ...]) -> None:
    """Freeze the parts for the root in `directory`, under a serial of their own."""
    origin = project_origin(directory)
    serial = next_serial(directory, platform_name())
    root = (directory / "root.json").read_bytes()
    facts = built_file(root, origin, serial, str(serial), commit="", floors={})
    found = [find_manifest(name) for name in flavors]
    build_parts(output, facts, found, str(serial), serial)
