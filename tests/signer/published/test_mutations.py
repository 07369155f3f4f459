"""Metadata with every field mutated: each ends in our error, whatever is written there."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError
from stoilo.signer.published.history import read_history
from stoilo.signer.published.places import DirectoryPlace

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["", "ed25519", "rsa", "gpg", "ecdsa", "ab" * 32, "../x", "\u202e"]
    ),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=6), st.integers(0, 9), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON document."""
    found = [path] if path else []
    rows = value.items() if isinstance(value, dict) else ()
    rows = enumerate(value) if isinstance(value, list) else rows
    for key, inner in rows:
        found += places(inner, (*path, key))
    return found


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def refused(template: Path, name: str, data: bytes) -> None:
    """Read all metadata with other bytes in one file: it must be refused."""
    place = DirectoryPlace(template)

    def read(wanted: str, limit: int) -> bytes | None:
        return data if wanted == name else place.read(wanted, limit)

    with pytest.raises(StoiloError):
        read_history(read, place.names(), None)


def metadata_names(template: Path) -> list[str]:
    return sorted(f"metadata/{path.name}" for path in (template / "metadata").iterdir())


@given(st.data())
def test_any_field_mutated_is_refused(template: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(metadata_names(template)))
    document = json.loads((template / name).read_bytes())
    path = data.draw(st.sampled_from(places(document)))
    old = document
    for key in path:
        old = old[key]
    value = data.draw(ODD.filter(lambda new: new != old or type(new) is not type(old)))
    changed = with_value(document, path, value)
    text = json.dumps(changed, sort_keys=True, separators=(",", ":"))
    refused(template, name, text.encode("utf-8", "surrogatepass"))


@given(st.data())
def test_any_field_left_out_or_added_is_refused(
    template: Path, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(metadata_names(template)))
    document = json.loads((template / name).read_bytes())
    path = data.draw(st.sampled_from(places(document)))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()) or not isinstance(inner, dict):
        del inner[path[-1]]
    else:
        inner["x-more"] = 1
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    refused(template, name, text.encode())


def test_what_is_written_back_unchanged_is_read(template: Path) -> None:
    place = DirectoryPlace(template)
    for name in metadata_names(template):
        document = json.loads((template / name).read_bytes())
        text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        assert text == (template / name).read_bytes(), name
    assert read_history(place.read, place.names(), None).roots
