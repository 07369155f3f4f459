"""What is changed in a development root: reviewers, withdrawals, epochs, programs.

A released project's people sign these in a ceremony. A development root has its offline
keys beside the online ones anyway, so here one call does it all.

A new list of withdrawals *settles* the online statements up to the one it was made from:
what it does not take over from them is withdrawn no more. A statement that was signed
meanwhile has a higher number and stays in force, so nothing is lost between the two.

Programs get a BOINC code-sign key of their own:

    DIR/offline/boinc.key               private, made at the first call
    DIR/boinc/key.pub, launcher/*.sig …  as a ceremony publishes them

Trust: a build directory is the operator's own; its files must be what their records say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PrivateKey, parse_public_key
from stoilo.core.statement import RevocationStatement
from stoilo.executor.verifier.targets import (
    PartFile,
    ProjectFile,
    ReviewerFile,
    ReviewerKey,
    RevocationFile,
    read_target,
)
from stoilo.signer.boinc_keys import (
    BoincPrivateKey,
    generate_boinc_key,
    parse_boinc_private,
    render_boinc_private,
)
from stoilo.signer.ceremony.base_release import BaseRelease, open_published
from stoilo.signer.ceremony.boinc_files import (
    is_boinc_file,
    sign_boinc_files,
)
from stoilo.signer.ceremony.built_parts import read_parts_from
from stoilo.signer.ceremony.checks import check_pairs
from stoilo.signer.ceremony.lists import list_target, read_epoch_files, read_list
from stoilo.signer.ceremony.proposal import Changes, next_proposal
from stoilo.signer.ceremony.requests import epoch_targets, merge_withdrawn
from stoilo.signer.development.root import (
    ONLINE_REVOCATION_KEY,
    check_development,
    development_ceremony,
    publish_ceremony,
    publish_changes,
    with_online_key,
)
from stoilo.signer.key_files import (
    read_private_file,
    write_private_file,
)
from stoilo.signer.process.memory import REVOCATION_LEDGER, RevocationLedger
from stoilo.signer.process.online_keys import CLOCK_MARGIN_S, last_epoch, make_epoch
from stoilo.signer.repository import (
    publishing,
)


def list_reviewers(directory: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers whom the release in `directory` names."""
    return read_list(open_published(directory).target, ReviewerFile).keys


def with_reviewer(named: Sequence[ReviewerKey], entry: ReviewerKey) -> ReviewerFile:
    """Return the list with `entry`, instead of an earlier one of the same key. Pure.

    Raises ``STO-K001`` for a key that is none.
    """
    parse_public_key(entry.key)
    others = [one for one in named if one.key != entry.key]
    return ReviewerFile((*others, entry))


def without_reviewer(named: Sequence[ReviewerKey], key: str) -> ReviewerFile:
    """Return the list without `key` (hex), or raise ``STO-K054``. Pure."""
    others = tuple(one for one in named if one.key != key)
    if len(others) == len(named):
        raise UsageError("STO-K054", "no reviewer has this key")
    return ReviewerFile(others)


def publish_reviewers(
    directory: Path, change: Callable[[Sequence[ReviewerKey]], ReviewerFile], now: int
) -> None:
    """Publish a changed list of reviewers; raises as `change`, and ``STO-K091``.

    From then on no executor that has the new metadata runs what a withdrawn key reviewed.
    """
    check_development(directory)
    with publishing(directory):
        record = list_target(change(list_reviewers(directory)))
        publish_changes(directory, Changes((record,)), now)


def certify_fresh_epoch(directory: Path, now: int) -> int:
    """Certify one more gate epoch, open now, by the gate role; returns its number.

    For when those certified ahead are withdrawn, because their keys were stolen too.
    """
    check_development(directory)
    with publishing(directory):
        epochs = read_epoch_files(open_published(directory).target)
        if not epochs:
            raise TrustError("STO-K013", "the release has no epochs")
        number = last_epoch(directory) + 1
        fresh = make_epoch(directory, number, now - CLOCK_MARGIN_S)
        publish_changes(directory, Changes(tuple(epoch_targets([*epochs, fresh]))), now)
    return number


def offline_list(directory: Path) -> RevocationFile:
    """Return what the offline revocation role has published last."""
    return read_list(open_published(directory).target, RevocationFile)


def revoke(directory: Path, denied: RevocationFile, now: int) -> None:
    """Publish `denied` by the revocation role's key.

    Where it names no key that may add online, the directory's own stays.
    """
    check_development(directory)
    record = list_target(with_online_key(directory, denied))
    with publishing(directory):
        publish_changes(directory, Changes((record,)), now)


def newest_online(directory: Path) -> RevocationStatement | None:
    """Return the last statement that the signer of `directory` signed; ``STO-A086``."""
    return RevocationLedger(directory / "state" / REVOCATION_LEDGER).last


def settle_list(
    offline: RevocationFile,  # the present one
    # the newest statement, all of which is taken over
    online: RevocationStatement | None,
    *,
    add: RevocationStatement | None = None,  # withdrawn besides; only its lists count
    remove: RevocationStatement | None = None,  # taken back; only its lists count
) -> RevocationFile:
    """Return the next offline list; pure.

    Raises:
        UsageError: ``STO-K054`` when something to take back is not withdrawn.
    """
    # What was settled before is in the offline list, or was taken back on purpose.
    settled = online is None or online.sequence <= offline.settled
    more = [one for one in (None if settled else online, add) if one is not None]
    return msgspec.structs.replace(
        merge_withdrawn(offline, *more, remove=remove),
        settled=max(offline.settled, 0 if online is None else online.sequence),
    )


def settle_revocations(
    directory: Path,
    now: int,
    *,
    add: RevocationStatement | None = None,
    remove: RevocationStatement | None = None,
) -> RevocationFile:
    """Publish the next offline list of a release; see `settle_list`.

    Raises ``STO-K054``; ``STO-A086``.
    """
    online = newest_online(directory)
    listed = settle_list(offline_list(directory), online, add=add, remove=remove)
    revoke(directory, listed, now)
    return listed


def replace_online_key(directory: Path, now: int) -> RevocationFile:
    """Make a new online revocation key and publish the offline list that names it.

    Everything that was withdrawn online is taken over. The old key's numbers, which a
    thief may have used up, count no more: the new key begins with 1.
    """
    check_development(directory)
    path = directory / "online" / ONLINE_REVOCATION_KEY
    key = PrivateKey.generate()
    listed = settle_list(offline_list(directory), newest_online(directory))
    keys = (key.public.raw.hex(),)
    # A thief may have used up the old key's numbers: the new key's begin at one.
    listed = msgspec.structs.replace(listed, keys=keys, settled=0)
    write_private_file(path, key.pem())
    revoke(directory, listed, now)
    return listed


KEY_FILE: Final = "boinc.key"


@dataclass(frozen=True, slots=True)
class PublishedPrograms:
    """Names of the files that a release hands out from now on, and those of BOINC's apps."""

    targets: tuple[str, ...]
    signed: tuple[str, ...]


def project_root(directory: Path) -> bytes:
    """Return the root that a verifier of this development root is built for.

    Raises ``STO-K091`` when the directory is a released project's; ``STO-K093`` when it
    has no root.
    """
    check_development(directory)
    try:
        return (directory / "root.json").read_bytes()
    except OSError as error:
        raise UsageError(
            "STO-K093",
            "there is no development root here yet",
            hint="start the server once: stoilo up --data DIR; or, for a stock project, "
            "add --new",
        ) from error


def project_origin(directory: Path) -> str:
    """Return the origin of this development root; raises as `project_root`."""
    return read_list(_release(directory).target, ProjectFile).origin


def next_serial(directory: Path, platform: str) -> int:
    """Return a serial that no published launcher or verifier of `platform` has."""
    base = _release(directory)
    serials = [
        read_target(data, PartFile, name).serial
        for name in (f"launcher/{platform}.json", f"verifier/{platform}.json")
        if (data := base.target(name)) is not None
    ]
    return max(serials, default=0) + 1


def publishes_flavors(directory: Path) -> bool:
    """Whether the release names any flavor: then tasks can use no others."""
    names = _release(directory).names()
    return any(name.startswith(("flavor/", "policy/flavor-")) for name in names)


def publish_programs(directory: Path, build: Path, now: int) -> PublishedPrograms:
    """Publish every part of `build` in the development root in `directory`.

    Raises as `project_root`; ``STO-K050`` when the build holds no part; ``STO-K050``
    when a file is not what its record says; ``STO-F034`` for a launcher without
    verifier; for one built for another root.
    """
    project_root(directory)
    changes = read_parts_from(build)
    names = tuple(sorted(one.name for one in changes.put))
    signed = tuple(name for name in names if is_boinc_file(name))
    _refuse_half_pairs(signed)
    with publishing(directory):
        proposal = next_proposal(open_published(directory), changes, now)
        ceremony = development_ceremony(proposal, now)
        for problem in check_pairs(ceremony):
            raise problem
        if signed:
            ceremony = sign_boinc_files(ceremony, ensure_boinc_key(directory))
        publish_ceremony(directory, ceremony, now)
    return PublishedPrograms(names, signed)


def ensure_boinc_key(directory: Path) -> BoincPrivateKey:
    """Return the development root's BOINC code-sign key, made when there is none.

    Raises ``STO-K091`` when the directory is a released project's; ``STO-K003``,
    ``STO-K029``, ``STO-K076`` when the key's file cannot be used.
    """
    check_development(directory)
    path = directory / "offline" / KEY_FILE
    if not path.exists():
        write_private_file(path, render_boinc_private(generate_boinc_key()).encode())
    return parse_boinc_private(read_private_file(path).decode("ascii", "replace"))


def _release(directory: Path) -> BaseRelease:
    project_root(directory)
    return open_published(directory)


def _refuse_half_pairs(signed: Iterable[str]) -> None:
    """Refuse a launcher without the verifier that it starts, and the reverse."""
    names = Counter(name.partition("/")[2].removesuffix(".tar") for name in signed)
    # A launcher holds the digest of one verifier: alone it stops every host.
    if alone := sorted(name for name, count in names.items() if count == 1):
        raise TrustError(
            "STO-F034", f"launcher and verifier belong together: {', '.join(alone)}"
        )
