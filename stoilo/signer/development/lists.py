"""Reviewers, withdrawals and epochs of a development root, signed by its own offline keys.

A new list of withdrawals *settles* the online statements up to the one it was made from:
what it does not take over from them is withdrawn no more. A statement that was signed
meanwhile has a higher number and stays in force, so nothing is lost between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PrivateKey, parse_public_key
from stoilo.core.statement import RevocationStatement
from stoilo.executor.verifier.targets import (
    ReviewerFile,
    ReviewerKey,
    RevocationFile,
    read_target,
)
from stoilo.executor.verifier.trust import REVIEWERS_FILE, REVOCATION_FILE
from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.ceremony.requests import (
    epoch_targets,
    merge_withdrawn,
    named_record,
)
from stoilo.signer.development.root import (
    ONLINE_REVOCATION_KEY,
    check_development,
    publish_changes,
    published_epochs,
    with_online_key,
)
from stoilo.signer.key_files import write_private_file
from stoilo.signer.process.memory import REVOCATION_LEDGER, RevocationLedger
from stoilo.signer.process.online_keys import CLOCK_MARGIN_S, last_epoch, make_epoch
from stoilo.signer.repository import (
    publishing,
)


def list_reviewers(directory: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers whom the release in `directory` names."""
    data = open_published(directory).target(REVIEWERS_FILE)
    return read_target(data, ReviewerFile, REVIEWERS_FILE).keys if data else ()


def with_reviewer(named: Sequence[ReviewerKey], entry: ReviewerKey) -> ReviewerFile:
    """Return the list with `entry`, instead of an earlier one of the same key. Pure.

    Raises ``STO-K001``, ``STO-K002`` for a key that is none.
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
        record = named_record(REVIEWERS_FILE, change(list_reviewers(directory)))
        publish_changes(directory, Changes((record,)), now)


def certify_fresh_epoch(directory: Path, now: int) -> int:
    """Certify one more gate epoch, open now, by the gate role; returns its number.

    For when those certified ahead are withdrawn, because their keys were stolen too.
    """
    check_development(directory)
    with publishing(directory):
        epochs = published_epochs(open_published(directory))
        if not epochs:
            raise TrustError("STO-K014", "the release has no epochs")
        number = last_epoch(directory) + 1
        fresh = make_epoch(directory, number, now - CLOCK_MARGIN_S)
        publish_changes(directory, Changes(tuple(epoch_targets([*epochs, fresh]))), now)
    return number


def offline_list(directory: Path) -> RevocationFile:
    """Return what the offline revocation role has published last."""
    data = open_published(directory).target(REVOCATION_FILE) or b"{}"
    return read_target(data, RevocationFile, REVOCATION_FILE)


def revoke(directory: Path, denied: RevocationFile, now: int) -> None:
    """Publish `denied` by the revocation role's key.

    Where it names no key that may add online, the directory's own stays.
    """
    check_development(directory)
    record = named_record(REVOCATION_FILE, with_online_key(directory, denied))
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
        UsageError: ``STO-L163`` when something to take back is not withdrawn.
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

    Raises ``STO-L163``; ``STO-A086``.
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
