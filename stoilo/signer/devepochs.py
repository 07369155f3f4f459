"""The gate's epochs in a development root: made ahead, certified by its own gate role.

Trust: the directory is this server's own; see `stoilo.signer.devroot`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from tuf.api.metadata import Targets

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.release.targets import EpochFile, EpochsFile, read_target
from stoilo.executor.verifier.release.trust import EPOCHS_FILE
from stoilo.signer.devkeys import check_development, offline_role
from stoilo.signer.keyfiles import ensure_key
from stoilo.signer.repository import (
    newest,
    newest_file,
    publish_targets,
    publishing,
    refresh_online_metadata,
)

__all__ = [
    "certify_fresh_epoch",
    "publish_epochs",
    "published_epochs",
    "wanted_epochs",
]

DAY_S: Final = 24 * 3600
EPOCH_LIFE_S: Final = 28 * DAY_S
EPOCH_STEP_S: Final = 13 * DAY_S
EPOCHS_AHEAD: Final = 2
CLOCK_MARGIN_S: Final = 3600
MAX_PER_MINUTE: Final = 600_000
_EPOCH_NAME: Final = re.compile(r"gate/[0-9]{1,10}\.json")


def certify_fresh_epoch(directory: Path, now: int) -> int:
    """Certify one more gate epoch, open now, by the gate role; returns its number.

    For when those certified ahead are withdrawn, because their keys were stolen too.
    """
    check_development(directory)
    with publishing(directory):
        epochs = published_epochs(directory)
        if not epochs:
            raise TrustError("STO-K014", "the release has no epochs")
        number = _last_number(directory) + 1
        fresh = _make_epoch(directory, number, now - CLOCK_MARGIN_S)
        publish_epochs(directory, [*epochs, fresh], now)
        online = ensure_key(directory / "online" / "online.pem")
        refresh_online_metadata(directory, online, now)
    return number


def publish_epochs(directory: Path, epochs: Sequence[EpochFile], now: int) -> None:
    """Publish the gate role, which certifies exactly `epochs`."""
    numbers = EpochsFile(tuple(epoch.epoch for epoch in epochs))
    files = {EPOCHS_FILE: msgspec.json.encode(numbers)} | {
        f"gate/{epoch.epoch}.json": msgspec.json.encode(epoch) for epoch in epochs
    }
    publish_targets(directory, "gate", offline_role(directory, "gate"), files, now)


def wanted_epochs(directory: Path, now: int) -> list[EpochFile]:
    """Return the epochs to certify: those not long over, and enough ahead of `now`."""
    epochs = [
        epoch
        for epoch in published_epochs(directory)
        if epoch.not_after > now - EPOCH_LIFE_S
    ]
    if not epochs:
        last = _last_number(directory)
        epochs = [_make_epoch(directory, last + 1, now - CLOCK_MARGIN_S)]
    while epochs[-1].not_before < now + (EPOCHS_AHEAD - 1) * EPOCH_STEP_S - DAY_S:
        last_epoch = epochs[-1]
        start = max(last_epoch.not_before + EPOCH_STEP_S, now - CLOCK_MARGIN_S)
        epochs.append(_make_epoch(directory, last_epoch.epoch + 1, start))
    return epochs


def _make_epoch(directory: Path, number: int, start: int) -> EpochFile:
    """Return a new epoch's certificate, making its key."""
    key = ensure_key(directory / "online" / f"gate-{number}.pem")
    return EpochFile(
        epoch=number,
        keys=(key.public.raw.hex(),),
        threshold=1,
        not_before=start,
        not_after=start + EPOCH_LIFE_S,
        max_per_minute=MAX_PER_MINUTE,
    )


def published_epochs(directory: Path) -> list[EpochFile]:
    """Return the epochs that the newest metadata certifies, by number.

    A directory of an earlier version certifies them by its targets role.
    """
    role = "targets" if newest(directory, "gate", Targets) is None else "gate"
    current = newest(directory, role, Targets)
    names = () if current is None else current.signed.targets
    found = []
    for name in names:
        if _EPOCH_NAME.fullmatch(name):
            data = newest_file(directory, role, name) or b""
            found.append(read_target(data, EpochFile, name))
    return sorted(found, key=lambda epoch: epoch.epoch)


def _last_number(directory: Path) -> int:
    """Return the highest epoch that ever had a key here, 0 for none."""
    names = (path.stem for path in (directory / "online").glob("gate-*.pem"))
    return max((int(name.removeprefix("gate-")) for name in names), default=0)
