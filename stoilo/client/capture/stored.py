"""Values uploaded once and named by many tasks."""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.core.codec.skeleton import encode
from stoilo.core.codec.values import to_node
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.core.limits import BOUNDS


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A handle of `Connection.put`.

    Attributes:
        digest: SHA-256 of the encoded value, the blob's name.
        size: encoded size, bytes.
    """

    digest: str
    size: int

    @classmethod
    def of(cls, value: object) -> tuple[StoredValue, bytes]:
        """Return the handle of a plain value and its encoding.

        Raises:
            UsageError: ``STO-D…`` not plain data, ``STO-C020`` too large.
        """
        data = encode(to_node(value))
        if len(data) > BOUNDS.blob_bytes:
            raise UsageError(
                "STO-C020",
                f"the value takes {len(data)} bytes, at most {BOUNDS.blob_bytes} travel",
                hint="split it into parts and put each",
            )
        return cls(content_digest(data), len(data)), data


def encode_stored(data: bytes) -> str:
    """Return the name under which `data` is stored."""
    return content_digest(data)
