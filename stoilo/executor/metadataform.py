"""What python-tuf leaves open about metadata's form: one encoding, every key counted once.

Trust: metadata is hostile. JSON with duplicate names or floats means different things to
different readers. And python-tuf verifies a signature over what it has read, encoded anew:
a field that it fills in where it is missing or null is then covered though nobody signed
it. So the bytes themselves must be the one encoding of what was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuf.api.metadata import Delegations, Metadata, Role, Root
from tuf.api.serialization import DeserializationError

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import parse_strict_json

__all__ = ["check_form", "check_keys"]


def check_form(data: bytes, name: str) -> None:
    """Refuse metadata that is not in its one encoding.

    Args:
        data: a metadata file, hostile.
        name: its name, for messages.

    Raises:
        TrustError: STO-K042, keys in another order, white space, a name twice, floats,
            a field left to its default …
    """
    try:
        parse_strict_json(data, max_bytes=BOUNDS.metadata_bytes, what=name)
        read = Metadata[Root].from_bytes(data).to_bytes()
    except DeserializationError:
        return  # the client names what is wrong with it
    except TrustError as error:
        raise TrustError("STO-K042", f"{name}: {error.message}") from error
    if read != data:
        raise TrustError("STO-K042", f"{name} is not written in its one form")


def check_keys(delegator: Root | Delegations) -> None:
    """Refuse a role that one key could sign for twice, under two key ids.

    Args:
        delegator: who names keys: a root, or what targets delegates.

    Raises:
        TrustError: STO-K040.
    """
    roles: Iterable[tuple[str, Role]] = (delegator.roles or {}).items()
    for name, role in roles:
        known = [delegator.keys[one] for one in role.keyids if one in delegator.keys]
        values = [str(key.keyval.get("public")) for key in known]
        if len(set(values)) != len(values):
            raise TrustError("STO-K040", f"role {name} names one key twice")
        if len(values) < role.threshold:
            raise TrustError("STO-K012", f"role {name} has fewer keys than it needs")
