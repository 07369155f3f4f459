"""Metadata with any byte or any field changed is refused; hosts never learn from it.

Only in a root may something change unnoticed: a signature beyond the threshold, which TUF
asks clients to ignore. `stoilo release verify` refuses that too.
"""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.trust import parse_release_pack
from stoilo.signer.release_pack import pack_release
from tests.support.gate import NOW
from tests.support.metadata import ORIGIN, MetadataBench

Path = tuple[str | int, ...]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
)


@pytest.fixture(scope="module")
def bench() -> MetadataBench:
    made = MetadataBench(NOW)
    made.publish_root()
    made.publish_root()
    return made


def is_root(name: str) -> bool:
    return name.endswith(".root.json")


def load_with(bench: MetadataBench, name: str, data: bytes | None) -> str:
    """Return what a new host says of the release with one file exchanged."""
    other = MetadataBench.__new__(MetadataBench)
    other.__dict__ |= bench.__dict__
    other.files = {key: value for key, value in bench.files.items() if key != name}
    if data is not None:
        other.files[name] = data
    return other.load()


def read_by_hosts(bench: MetadataBench) -> list[str]:
    """Return every file but the first root, which hosts have of their own."""
    return sorted(set(bench.files) - {"metadata/1.root.json"})


def places(document: object, at: Path = ()) -> Iterator[Path]:
    """Yield where each value of a JSON document is."""
    rows = document.items() if isinstance(document, dict) else ()
    rows = enumerate(document) if isinstance(document, list) else rows
    for key, value in rows:
        yield (*at, key)
        yield from places(value, (*at, key))


def replace(document: object, at: Path, value: object) -> object:
    """Return the document with one value replaced."""
    if not at:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[at[0]] = replace(copied[at[0]], at[1:], value)
    return copied


@given(st.data())
def test_any_changed_byte_is_refused(bench: MetadataBench, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(read_by_hosts(bench)))
    text = bytearray(bench.files[name])
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    found = load_with(bench, name, bytes(text))
    surplus = is_root(name) and bytes(text).find(b'"signed"') > place
    assert found != ORIGIN or surplus
    assert found.startswith("STO-K") or surplus


@given(st.data())
def test_any_cut_or_longer_file_is_refused(
    bench: MetadataBench, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(read_by_hosts(bench)))
    text = bench.files[name]
    cut = data.draw(st.integers(0, len(text) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    assert load_with(bench, name, text[:cut]).startswith("STO-K")
    assert load_with(bench, name, text + more).startswith("STO-K")


def test_any_missing_file_is_refused(bench: MetadataBench) -> None:
    for name in read_by_hosts(bench):
        if name != "metadata/3.root.json":  # a host without memory cannot miss it
            assert load_with(bench, name, None) in {"STO-K013", "STO-K031"}
    assert load_with(bench, "metadata/none", None) == ORIGIN  # control


@given(st.data())
def test_any_changed_field_is_refused(
    bench: MetadataBench, data: st.DataObject
) -> None:
    names = [name for name in read_by_hosts(bench) if name.startswith("metadata/")]
    name = data.draw(st.sampled_from(names))
    document = json.loads(bench.files[name])
    at = data.draw(st.sampled_from(sorted(places(document), key=str)))
    changed = replace(document, at, data.draw(VALUES))
    if changed == document:
        return
    text = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
    found = load_with(bench, name, text)
    surplus = is_root(name) and at[0] == "signatures"
    assert found.startswith("STO-K") or (surplus and found == ORIGIN)


@given(st.data())
def test_any_damage_to_a_pack_ends_in_our_error(
    bench: MetadataBench, data: st.DataObject
) -> None:
    pack = bytearray(pack_release(bench.release()))
    for _ in range(data.draw(st.integers(1, 4))):
        pack[data.draw(st.integers(0, len(pack) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = parse_release_pack(bytes(pack[: data.draw(st.integers(0, len(pack)))]))
    except TrustError as error:
        assert error.code.startswith("STO-")
    else:
        assert all(
            name.startswith(("metadata/", "targets/")) for name, _ in files.files
        )


def test_signature_beyond_the_threshold_is_the_only_exception(
    bench: MetadataBench,
) -> None:
    """Three of three signed the root: one may be damaged, two may not."""
    document = json.loads(bench.files["metadata/3.root.json"])
    for damaged, found in ((1, ORIGIN), (2, "STO-K031")):
        for signature in document["signatures"][:damaged]:
            signature["sig"] = "0" * 128
        text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        assert load_with(bench, "metadata/3.root.json", text) == found
