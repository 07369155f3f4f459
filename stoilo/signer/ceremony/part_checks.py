"""Do a proposal's launchers and verifiers belong to each other and to its root?

Signed by everybody and rebuilt equal, a launcher of another verifier, or a verifier that
knows another root, would stop every volunteer until the next ceremony. So it is looked at
before anybody signs.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Final

from stoilo.core.errors import StoiloError, TrustError
from stoilo.executor.verifier.installation import parse_built
from stoilo.executor.verifier.targets import PartFile, part_target
from stoilo.signer.ceremony.content_checks import release_parts
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.proposal import NewTarget, Proposal
from stoilo.signer.pairing import check_built, check_launcher, read_tree

MAX_PROGRAM_BYTES: Final = 16 * 1024**2


def check_pairs(ceremony: Ceremony) -> Iterator[StoiloError]:
    """Yield what does not belong together, among the new launchers and verifiers.

    Args:
        ceremony: its files hashed already, hostile.
    """
    try:
        parts = release_parts(ceremony.proposal)
    except StoiloError:
        return  # said by `check_content`
    verifiers = {one.platform: one for one in parts if one.part == "verifier"}
    new = {one.name: one for one in ceremony.proposal.targets}
    for part in parts:
        verifier = verifiers.get(part.platform)
        if verifier is None or part.part not in {"launcher", "verifier"}:
            continue
        target = part_target(part.part, part.platform)
        file = new.get(target if part.part == "launcher" else f"{target}.tar")
        if file is None:
            # It holds the digest of the old verifier and would not start
            # the new one.
            if part.part == "launcher" and _is_other(ceremony, verifier):
                yield TrustError(
                    "STO-F034",
                    f"the launcher for {part.platform} stays, and starts the verifier "
                    "before this one",
                    hint="publish the verifier and the launcher of one `stoilo release "
                    "build`",
                )
            continue
        try:
            if part.part == "launcher":
                with _open(file) as stream:
                    check_launcher(part, stream.read(MAX_PROGRAM_BYTES + 1), verifier)
            else:
                _check_verifier(ceremony, part, file)
        except StoiloError as error:
            yield error


def _is_other(ceremony: Ceremony, verifier: PartFile) -> bool:
    """Whether the published release holds another archive of this verifier, or none."""
    base = ceremony.proposal.base
    known = release_parts(Proposal(base)) if base else ()
    return not any(
        (one.part, one.platform, one.archive)
        == (verifier.part, verifier.platform, verifier.archive)
        for one in known
    )


def _check_verifier(ceremony: Ceremony, part: PartFile, file: NewTarget) -> None:
    """Check that a new verifier knows a published root; raises ``STO-F034``, ``STO-F035``.

    An archive that holds no readable tree is not judged here: no builder's tool attests one.
    """
    try:
        with _open(file) as stream:
            data = read_tree(stream, part.tree)
    except TrustError:
        return
    if not data:
        raise TrustError("STO-F034", f"the verifier for {part.platform} knows no root")
    base = ceremony.proposal.base
    check_built(
        parse_built(data),
        part,
        roots=() if base is None else tuple(one.data for one in base.roots),
        origin=ceremony.about.origin,
        rehearsal=ceremony.about.rehearsal,
        development=False,
    )


def _open(file: NewTarget) -> IO[bytes]:
    """Open a proposed file, which was hashed when the folder was read."""
    if isinstance(file.content, bytes):
        return io.BytesIO(file.content)
    return file.content.open("rb")
