"""JSON from another party, read strictly: one meaning per text, or a refusal.

Two parsers that disagree about a signed text are an attack (signing-audit §2.1), so
what they may disagree about is refused: duplicate keys, floats and NaN, surrogates,
integers beyond 64 bits, byte order marks, text after the value. Size and depth are
bounded before the parser runs. Trust: the input is hostile; the output holds only dict,
list, str, int, bool and None.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from stoilo.core.errors import TrustError

Json = None | bool | int | str | list["Json"] | dict[str, "Json"]

MAX_DEPTH = 16
MAX_INTEGER_CHARS = 19  # fits a signed 64-bit integer with its sign

# An unterminated string runs to the end of the text: without that branch the search
# would start again at every quote, and time would grow with the square of the size.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_strict_json(data: bytes, *, max_bytes: int, what: str) -> Json:
    """Return the value of `data` (hostile, at most `max_bytes`).

    Args:
        data: UTF-8 JSON text.
        max_bytes: largest size accepted, bytes; checked first.
        what: the document's name in messages, for example ``statement``.

    Raises:
        TrustError: STO-A001 too large, STO-A002 not JSON, STO-A003 duplicate keys,
            STO-A015 a number that is not a small integer, STO-A016 nested too deep.
    """
    if len(data) > max_bytes:
        raise TrustError("STO-A001", f"the {what} is larger than {max_bytes} bytes")
    _check_depth(data, what)
    if _SURROGATE_ESCAPE.search(data):
        raise TrustError("STO-A002", f"the {what} escapes a surrogate code point")
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_pairs,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            parse_int=_small_integer,
        )
    except (ValueError, RecursionError) as error:
        raise TrustError("STO-A002", f"the {what} is not strict JSON") from error
    return value


def _check_depth(data: bytes, what: str) -> None:
    """Refuse nesting past `MAX_DEPTH` before any recursive parser sees the text."""
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise TrustError(
                "STO-A016", f"the {what} nests deeper than {MAX_DEPTH} levels"
            )


def _unique_pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Build an object, refusing a key that occurs twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise TrustError("STO-A003", "a JSON object names one key twice")
    return members


def _refuse_number(text: str) -> NoReturn:
    """Refuse floats, exponents, NaN and infinities: none has one exact meaning."""
    raise TrustError("STO-A015", f"only integers are allowed, found {text[:20]!r}")


def _small_integer(text: str) -> int:
    """Return an integer of at most 64 bits."""
    if len(text) > MAX_INTEGER_CHARS:
        raise TrustError("STO-A015", "an integer is longer than 64 bits")
    return int(text)
