"""What the commands of a ceremony share: folders, people's public keys, the clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.witness.client import read_witnesses
from stoilo.cli.keys import read_public_file, read_small
from stoilo.cli.output import now as clock
from stoilo.cli.output import say
from stoilo.core.errors import UsageError
from stoilo.core.signatures import parse_public_key
from stoilo.executor.verifier.targets import BuilderKey
from stoilo.policies.policy import Policy, parse_policy
from stoilo.signer.ceremony.built_parts import read_attestations
from stoilo.signer.ceremony.folder import (
    Ceremony,
    add_builds,
    begin_on,
    read_folder,
    write_folder,
)
from stoilo.signer.ceremony.key_holders import KeyHolder
from stoilo.signer.ceremony.review import Review, render_review, review
from stoilo.signer.ceremony.transcript import add_line


def read_floors(rows: Iterable[str]) -> dict[str, int]:
    """Return part → lowest serial, of ``PART=SERIAL`` texts; raises ``STO-U003``."""
    floors = {}
    for row in rows:
        part, _, serial = row.partition("=")
        if not part or not serial.isascii() or not serial.isdigit():
            raise UsageError("STO-U003", f"{row[:40]!r} is not PART=SERIAL")
        floors[part] = int(serial)
    return floors


def read_holders(paths: Iterable[Path], role: str) -> tuple[KeyHolder, ...]:
    """Return who holds the keys in these public files; ``STO-K053`` for another role's."""
    holders = []
    for path in paths:
        public = read_public_file(path)
        if public.role != role:
            raise UsageError(
                "STO-K053",
                f"{path} was made for {public.role}, not for {role}",
                hint=f"stoilo release keygen --role {role} --name NAME --output DIR",
            )
        holders.append(KeyHolder(public.name, parse_public_key(public.key)))
    return tuple(holders)


def read_builders(paths: Iterable[Path]) -> list[BuilderKey]:
    """Return the builders whose public keys lie in `paths`; raises as `read_holders`."""
    holders = read_holders(paths, "builder")
    return [BuilderKey(one.key.raw.hex(), one.name) for one in holders]


def read_policies(paths: Iterable[Path]) -> tuple[Policy, ...]:
    """Return server policies (``stoilo up --policy``'s files)."""
    return tuple(parse_policy(read_small(path)) for path in paths)


def read_witness_policy(path: Path | None) -> LogPolicy:
    """Return who must cosign the log, without the log; None: nobody must."""
    return read_witnesses("" if path is None else str(path))


def refuse_present(folder: Path) -> None:
    """Refuse to begin where anything but builders' attestations lies already."""
    if folder.exists() and any(path.name != "builds" for path in folder.iterdir()):
        raise UsageError(
            "STO-K050",
            f"{folder} is not empty",
            hint="begin every ceremony in a folder of its own",
        )


def open_or_begin(
    folder: Path, release: Path | None, note: str, *, renews_expired: bool
) -> Ceremony:
    """Return the ceremony in `folder`, or a new one on the release in `release`.

    Raises ``STO-K050`` when there is neither.
    """
    if (folder / "ceremony.json").exists():
        if release is not None:
            raise UsageError(
                "STO-K050",
                f"{folder} holds a ceremony already",
                hint="leave --release out to ask for more in it, or name a new folder",
            )
        return read_folder(folder)
    if release is None:
        raise UsageError(
            "STO-K050",
            f"{folder} holds no ceremony yet",
            hint="say what it builds on: --release DIR",
        )
    refuse_present(folder)
    begun = begin_on(release, clock(), note=note, renews_expired=renews_expired)
    return add_builds(begun, read_attestations(folder))


def save(
    folder: Path,
    ceremony: Ceremony,
    act: str,
    note: str = "",
    *,
    who: str = "",
    key: str = "",
) -> None:
    """Write the folder and a line of its transcript, for everybody to read."""
    about = {"who": who, "key": key, "proposal": ceremony.digest, "note": note[:1024]}
    transcript = add_line(ceremony.transcript, act, clock(), **about)
    write_folder(folder, replace(ceremony, transcript=transcript))


def print_review(found: Review, *folders: Path, as_json: bool) -> None:
    """Print a review, for people or for programs."""
    text = render_review(found, " ".join(map(str, folders)))
    say(found, text, as_json=as_json)


def propose(
    folder: Path, ceremony: Ceremony, act: str, note: str, *, as_json: bool
) -> None:
    """Write what is proposed by now, and show how it looks to those who will sign."""
    save(folder, ceremony, act, note)
    print_review(review(ceremony, clock()), folder, as_json=as_json)
