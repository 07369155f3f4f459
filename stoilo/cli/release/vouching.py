"""What `stoilo release sign` signs beside ceremonies: builds, and BOINC's next key.

A builder says, by his own key, what he built; BOINC's old key lets clients that know it
accept a new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stoilo.cli.keys import open_key_file, read_public_file
from stoilo.cli.output import say
from stoilo.core.boinc.codesign import parse_boinc_public, render_boinc_public
from stoilo.core.errors import UsageError
from stoilo.signer.attestations import (
    attestation_path,
    build_inputs,
    make_attestation,
)
from stoilo.signer.boinc_keys import sign_key_change
from stoilo.signer.ceremony.built_parts import find_builds
from stoilo.signer.key_files import write_private_file
from stoilo.signer.offline_keys import BOINC_ROLE, BUILDER_ROLE

BUILD_TIME_S: Final = 315532800
"""The fixed time of our builds, s since 1970."""


def is_build(folder: Path) -> bool:
    """Return whether a build has left its parts here."""
    return any((folder / part).is_dir() for part in ("launcher", "verifier", "flavor"))


def attest(
    folder: Path,
    key_file: Path,
    output: Path | None,
    commit: str,
    passphrase_fd: int | None,
    *,
    as_json: bool,
) -> None:
    """Sign that the key's owner built the parts in `folder` himself.

    Every file is compared with its record first. A release needs at least two builders
    who got the same bytes.
    """
    builds = find_builds(folder)
    opened = open_key_file(key_file, passphrase_fd)
    if opened.role != BUILDER_ROLE:
        raise UsageError(
            "STO-U003",
            f"{key_file} is a {opened.role} key, and {folder} a build",
            hint="make a builder's: stoilo release keygen --role builder",
        )
    private, rows, lines = opened.ed25519(), [], []
    for build in builds:
        inputs = build_inputs(build.part, commit, BUILD_TIME_S)
        path = (output or folder) / attestation_path(build.part, private.public)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(path, make_attestation(build.part, inputs, private))
        part, sha256 = build.part, build.part.archive.sha256
        row = {"part": part.part, "platform": part.platform, "sha256": sha256}
        rows.append(row | {"file": str(path)})
        lines.append(f"{part.part} for {part.platform} {sha256[:16]}…  {path}")
    next_step = "another builder does the same, on another machine; then the ceremony."
    text = "\n".join([*lines, f"Next: {next_step}"])
    say({"builder": opened.name, "attested": rows}, text, as_json=as_json)


def vouch(
    new: Path,
    old: Path,
    output: Path,
    number: int,
    passphrase_fd: int | None,
    *,
    as_json: bool,
) -> None:
    """Write old_key_N and signature_stripped_N as a BOINC server hands them out.

    One signature is all that BOINC asks for, so a thief of the old key can do the same:
    the launcher's own checks do not rest on it.
    """
    successor = read_public_file(new)
    if successor.role != BOINC_ROLE:
        raise UsageError("STO-U003", f"{new} is a {successor.role} key")
    private = open_key_file(old, passphrase_fd).boinc()
    files = {
        f"old_key_{number}": render_boinc_public(private.public),
        f"signature_stripped_{number}": sign_key_change(
            parse_boinc_public(successor.key), private
        ),
        "code_sign_public": successor.key,
    }
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in files.items():
        write_private_file(output / name, text.encode("ascii"))
    made = [str(output / name) for name in files]
    text = "\n".join(
        [*made, "Next: put them into the server's keys directory; sign the files anew."]
    )
    say({"files": made}, text, as_json=as_json)
