"""Keys that a released project's server makes for itself, and what the ceremony gets of them.

Snapshot and timestamp, the log, the gate's epochs and the adding of revocations sign while
the server runs, so their private keys are born there and stay there, 0600, where the signer
process reads them. Their public parts travel to the ceremony in one file; nothing that an
online key signs counts before the offline keys have certified it.

    DIR/keys/online/*.pem           private, the signer's
    DIR/keys/state/requested.json   the newest `OnlineKeys`, also the memory of epochs

Trust: the directory is the server's own; `parse_online_keys` takes bytes from a stick.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from tuf.api.metadata import Root

from stoilo.audit.format.note import KeyType, parse_vkey, private_vkey, render_vkey
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import (
    PrivateKey,
    PublicKey,
    parse_public_key,
    parse_strict_json,
)
from stoilo.executor.verifier.targets import MAX_EPOCHS, EpochFile
from stoilo.signer.key_files import (
    ensure_key,
    make_private_directory,
    read_private_file,
    read_private_key,
    write_private_file,
)
from stoilo.signer.process.memory import LEDGER_FILE, create_ledger
from stoilo.signer.repository import newest, publishing, refresh_online_metadata

ONLINE_KEYS_FORMAT: Final = "stoilo-online-keys/1"
MAX_ONLINE_KEYS_BYTES: Final = 64 * 1024
DEFAULT_EPOCHS: Final = 4
"""Gate epochs to make ahead: 52 days; whoever steals the server has all of them."""

MOST_EPOCHS: Final = MAX_EPOCHS - 3  # up to three earlier ones are not over yet
REPLACEABLE: Final = ("online", "revocation", "gate")
"""Keys that can be made anew beside the present ones, for the next ceremony."""

REQUESTED_FILE: Final = "requested.json"
"""File, below ``state``, by which a released project's keys wait for a ceremony."""

DAY_S: Final = 24 * 3600
EPOCH_LIFE_S: Final = 28 * DAY_S
EPOCH_STEP_S: Final = 13 * DAY_S
CLOCK_MARGIN_S: Final = 3600
MAX_PER_MINUTE: Final = 600_000

_Key = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class OnlineKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``online.json``: the public parts of what a server made for itself."""

    format: Literal["stoilo-online-keys/1"]  # `ONLINE_KEYS_FORMAT`
    # the project's name, also its log's
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    # the log's verifier key, text of a signed note's key
    log_vkey: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    online: _Key  # key of snapshot and timestamp, hex
    revocation: _Key  # key that may add revocations, hex
    # every gate epoch that is not over and whose key lies on the server, certified
    # already or not, by number: ``gate/<n>.json`` of the release
    epochs: Annotated[
        tuple[EpochFile, ...], msgspec.Meta(min_length=1, max_length=MAX_EPOCHS)
    ]


def render_online_keys(keys: OnlineKeys) -> bytes:
    """Return the file's bytes, for people to read too."""
    return msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n"


def parse_online_keys(data: bytes) -> OnlineKeys:
    """Parse a file that came on a stick; raises ``STO-K090``."""
    try:
        document = parse_strict_json(
            data, max_bytes=MAX_ONLINE_KEYS_BYTES, what="file of online keys"
        )
        keys = msgspec.convert(document, type=OnlineKeys)
        _check(keys)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-K090", f"not a file of online keys: {error}") from error
    return keys


def _check(keys: OnlineKeys) -> None:
    """Refuse keys of no use, one key for two uses, and epochs out of order."""
    log = parse_vkey(keys.log_vkey)
    if log.name != keys.origin or render_vkey(log) != keys.log_vkey:
        raise TrustError("STO-K090", "the log's key is not one of this project")
    used = [log.public.hex(), keys.online, keys.revocation]
    used += [key for epoch in keys.epochs for key in epoch.keys]
    # One key, one use: a signature for one purpose must not pass for another.
    if len(set(used)) != len(used):
        raise TrustError("STO-K090", "one key is named for two uses")
    for key in used:
        parse_public_key(key)
    numbers = [epoch.epoch for epoch in keys.epochs]
    if numbers != sorted(set(numbers)):
        raise TrustError("STO-K090", "the epochs are not in order")
    for epoch in keys.epochs:
        if epoch.threshold > len(epoch.keys) or epoch.not_before >= epoch.not_after:
            raise TrustError("STO-K090", f"epoch {epoch.epoch} is impossible")


def awaits_ceremony(directory: Path) -> bool:
    """Whether online keys were made here and no root has been published yet."""
    if (directory / "root.json").exists():
        return False  # first: the signer's memory may be closed to who asks
    return (directory / "state" / REQUESTED_FILE).exists()


def requested_keys(directory: Path) -> OnlineKeys | None:
    """Return what `make_online_keys` returned last, None before the first time.

    Raises ``STO-K003``, ``STO-K029``, ``STO-K090`` when its memory cannot be used.
    """
    path = directory / "state" / REQUESTED_FILE
    return parse_online_keys(read_private_file(path)) if path.exists() else None


def make_online_keys(
    directory: Path,  # ``DIR/keys``; made 0700
    origin: str,  # the project's name
    now: int,  # Unix seconds
    *,
    # so many gate epochs, 13 days apart, begin between now and their end
    epochs: int = DEFAULT_EPOCHS,
    # some of `REPLACEABLE`: makes a new key beside the present one, which goes on
    # signing until the release names the new one. For ``gate``, new epochs begin now
    # and the older ones are no longer asked for.
    replace: Collection[str] = (),
) -> OnlineKeys:
    """Make what is missing and return the public parts of all; idempotent.

    Raises:
        UsageError: STO-K091 a development root lies here, STO-K090 the wrong project, or
            a number or role that there is not.
        TrustError: STO-K003 for open modes, STO-K090 for a damaged memory.
    """
    if not 1 <= epochs <= MOST_EPOCHS or set(replace) - set(REPLACEABLE):
        raise UsageError(
            "STO-K090",
            f"there can be 1 to {MOST_EPOCHS} epochs; "
            f"replaceable are {', '.join(REPLACEABLE)}",
        )
    make_private_directory(directory)
    if (directory / "offline").exists():
        raise UsageError(
            "STO-K091",
            "this data directory holds a development root",
            hint="give a released project a data directory of its own",
        )
    for part in ("online", "state"):
        make_private_directory(directory / part)
    with publishing(directory):
        before = requested_keys(directory)
        if before is not None and before.origin != origin:
            raise UsageError("STO-K090", f"these keys are for {before.origin!r}")
        keys = _next_keys(directory, origin, now, before, epochs, frozenset(replace))
        write_private_file(
            directory / "state" / REQUESTED_FILE, render_online_keys(keys)
        )
    create_ledger(directory / "state" / LEDGER_FILE, origin)
    return keys


def certified_online_key(directory: Path) -> PrivateKey:
    """Return the key that the newest published root names for snapshot and timestamp.

    Raises ``STO-K029`` when it is not here, ``STO-K013`` without any root.
    """
    root = newest(directory, "root", Root)
    if root is None:
        raise TrustError("STO-K013", "the release has no root")
    named = root.signed.roles["timestamp"].keyids
    wanted = {root.signed.keys[key].keyval["public"] for key in named}
    return find_key(directory, "online", {parse_public_key(key) for key in wanted})


def find_key(directory: Path, name: str, wanted: Collection[PublicKey]) -> PrivateKey:
    """Return the private key called `name`, the first one or a successor, among `wanted`.

    Raises ``STO-K029`` when none of the keys here is one of those.
    """
    folder = directory / "online"
    for path in sorted(folder.glob(f"{name}*.pem")):
        key = read_private_key(path)
        if key.public in wanted:
            return key
    raise TrustError("STO-K029", f"no key here is the certified one for {name}")


def renew_online_metadata(directory: Path, now: int) -> None:
    """Sign snapshot and timestamp where due, in the server's own directory.

    For whoever has just published there, also beside a running server.

    Raises ``STO-K012``, ``STO-K013``, ``STO-K029``.
    """
    with publishing(directory):
        refresh_online_metadata(directory, certified_online_key(directory), now)


def _next_keys(
    directory: Path,
    origin: str,
    now: int,
    before: OnlineKeys | None,
    count: int,
    replace: frozenset[str],
) -> OnlineKeys:
    """Return what there is now, making keys where none is."""
    # Never replaced here: a log with another key is another log.
    log = ensure_key(directory / "online" / "log.pem")
    known = () if before is None or "gate" in replace else before.epochs
    kept = [epoch for epoch in known if epoch.not_after > now]
    return OnlineKeys(
        format=ONLINE_KEYS_FORMAT,
        origin=origin,
        log_vkey=render_vkey(private_vkey(origin, KeyType.ED25519, log.key)),
        online=_named_key(directory, "online", before, replace),
        revocation=_named_key(directory, "revocation", before, replace),
        epochs=epochs_ahead(
            directory, now, kept, now + (count - 1) * EPOCH_STEP_S - DAY_S
        ),
    )


def _named_key(
    directory: Path, name: str, before: OnlineKeys | None, replace: frozenset[str]
) -> str:
    """Return the public key, hex, to ask for: the last one's, the first, or a new one."""
    folder = directory / "online"
    if name in replace:
        new = PrivateKey.generate()
        public = new.public.raw.hex()
        # Beside the present one, which signs until a ceremony has named the new one.
        write_private_file(folder / f"{name}-{public[:16]}.pem", new.pem())
        return public
    if before is not None:
        return before.online if name == "online" else before.revocation
    return ensure_key(folder / f"{name}.pem").public.raw.hex()


def epochs_ahead(
    directory: Path, now: int, kept: Sequence[EpochFile], until: int
) -> tuple[EpochFile, ...]:
    """Return `kept` and as many more, their keys made, as begin before `until`."""
    epochs = list(kept)
    while not epochs or epochs[-1].not_before < until:
        start = now - CLOCK_MARGIN_S
        number = last_epoch(directory)
        if epochs:
            start = max(start, epochs[-1].not_before + EPOCH_STEP_S)
            number = max(number, epochs[-1].epoch)
        epochs.append(make_epoch(directory, number + 1, start))
    return tuple(epochs)


def make_epoch(directory: Path, number: int, start: int) -> EpochFile:
    """Return the certificate to ask for, making the epoch's key."""
    key = ensure_key(directory / "online" / f"gate-{number}.pem")
    return EpochFile(
        epoch=number,
        keys=(key.public.raw.hex(),),
        threshold=1,
        not_before=start,
        not_after=start + EPOCH_LIFE_S,
        max_per_minute=MAX_PER_MINUTE,
    )


def last_epoch(directory: Path) -> int:
    """Return the highest epoch that ever had a key here, 0 for none."""
    names = (path.stem for path in (directory / "online").glob("gate-*.pem"))
    return max((int(name.removeprefix("gate-")) for name in names), default=0)
