"""The signatures of several copies of one ceremony, brought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tuf.api.metadata import Metadata

from stoilo.core.errors import TrustError, UsageError
from stoilo.signer.ceremony.folder import Ceremony, NamedBytes
from stoilo.signer.ceremony.metadata import (
    RoleFile,
    open_root,
    open_targets,
    role_file,
)
from stoilo.signer.ceremony.transcript import (
    combine_transcripts,
    parse_transcript,
    render_transcript,
)

__all__ = ["combine"]


def combine(ceremonies: Sequence[Ceremony]) -> Ceremony:
    """Return one ceremony with everybody's signatures; the order does not matter.

    Signatures are only gathered here: whether they verify, `review` says.

    Raises:
        UsageError: ``STO-K069`` for none.
        TrustError: ``STO-K069`` when two of them are not copies of one proposal, or hold
            different files under one name; ``STO-K077`` for transcripts of others.
    """
    if not ceremonies:
        raise UsageError("STO-K069", "there is nothing to combine")
    first = ceremonies[0]
    for other in ceremonies[1:]:
        if (other.digest, other.about) != (first.digest, first.about):
            raise TrustError(
                "STO-K069",
                f"a copy is of proposal {other.digest[:16]}, another of "
                f"{first.digest[:16]}",
                hint="combine copies of one and the same folder",
            )
    metadata = tuple(
        _united([one.proposal.metadata[place] for one in ceremonies])
        for place in range(len(first.proposal.metadata))
    )
    return replace(
        first,
        proposal=replace(first.proposal, metadata=metadata),
        builds=_together("builds", [one.builds for one in ceremonies]),
        boinc=_together("boinc", [one.boinc for one in ceremonies]),
        online=_together(
            "requests", [(("online.json", one.online),) for one in ceremonies]
        )[0][1],
        transcript=render_transcript(
            combine_transcripts(parse_transcript(one.transcript) for one in ceremonies)
        ),
    )


def _united(files: Sequence[RoleFile]) -> RoleFile:
    """Return one file with the signatures of all.

    Raises:
        TrustError: ``STO-K069`` for two signatures by one key: one of them is false.
    """
    opened = [_open(file) for file in files]
    united = opened[0]
    for other in opened[1:]:
        for keyid, signature in other.signatures.items():
            known = united.signatures.setdefault(keyid, signature)
            if known.signature != signature.signature:
                raise TrustError(
                    "STO-K069",
                    f"two copies hold different signatures of one key ({keyid[:8]}) on "
                    f"{files[0].name}",
                )
    return role_file(files[0].role, united)


def _open(file: RoleFile) -> Metadata[Any]:
    return open_root(file) if file.role == "root" else open_targets(file)


def _together(
    what: str, parts: Sequence[tuple[NamedBytes, ...]]
) -> tuple[NamedBytes, ...]:
    """Return every file of all copies, each name with one content."""
    found: dict[str, bytes] = {}
    for name, data in (row for part in parts for row in part):
        if found.setdefault(name, data) != data:
            raise TrustError("STO-K069", f"two copies hold different {what}/{name}")
    return tuple(sorted(found.items()))
