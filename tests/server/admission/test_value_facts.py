from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

import pytest

from stoilo.core.codec.nodes import Ndarray, Node
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import TrustError
from stoilo.server.admission import value_facts
from stoilo.server.admission.value_facts import (
    LIGHT,
    ValueFacts,
    find_facts,
    read_blob,
    read_facts,
)

ARRAY = Ndarray("float64", (2,), bytes(16))
HEAVY = encode([[number] for number in range(50_000)])


def empties(count: int) -> bytes:
    """Return a list of so many empty lists."""
    return b"STO\x01l" + struct.pack("<I", count) + b"l\0\0\0\0" * count


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Notes what is read in a process of its own."""
    seen: list[object] = []
    read = value_facts._read_beside

    def noting(file: IO[bytes]) -> ValueFacts:
        seen.append(file)
        return read(file)

    monkeypatch.setattr(value_facts, "_read_beside", noting)
    return seen


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        (7, ValueFacts(())),
        ([1, 2], ValueFacts((), 2)),
        ({"x": ARRAY}, ValueFacts(("numpy.ndarray",))),
    ],
)
def test_facts_of_a_small_value_need_no_process(
    value: object, facts: ValueFacts, beside: list[object]
) -> None:
    data = encode(value)  # type: ignore[arg-type]  # nodes
    assert find_facts(data, LIGHT) == read_facts(data) == facts
    assert not beside


def test_value_of_many_elements_is_read_beside_and_gives_the_same(
    beside: list[object],
) -> None:
    facts = read_facts(HEAVY)
    assert facts == find_facts(HEAVY, value_facts.SkeletonBounds())
    assert len(beside) == 1


def test_light_bound_stops_early_what_it_stops() -> None:
    with pytest.raises(TrustError, match="STO-D005"):
        find_facts(empties(LIGHT.nodes + 1), LIGHT)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HEAVY[:-1], "STO-D002"),
        (HEAVY + b"N", "STO-D002"),
        (empties(1_000_001), "STO-D005"),
        (b"", "STO-D002"),
    ],
    ids=["cut", "more", "too many", "empty"],
)
def test_malformed_value_is_refused_with_its_own_code(data: bytes, code: str) -> None:
    with pytest.raises(TrustError, match=code):
        read_facts(data)


def test_process_that_fails_refuses_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_facts.sys, "executable", "false")
    with pytest.raises(TrustError, match="STO-D005"):
        read_facts(HEAVY)


@pytest.mark.parametrize(
    ("value", "is_beside"),
    [
        (Ndarray("float64", (200_000,), bytes(1_600_000)), False),
        (Ndarray("bool", (1_600_000,), bytes(1_600_000)), True),
        ("x" * 1_600_000, True),
    ],
    ids=["array", "booleans", "text"],
)
def test_large_blob_is_read_beside_where_its_bytes_are_copied(
    tmp_path: Path, beside: list[object], value: Node, is_beside: bool
) -> None:
    path = tmp_path / "blob"
    path.write_bytes(encode([value]))
    facts = find_facts(path.read_bytes(), value_facts.SkeletonBounds())
    assert read_blob(path, path.stat().st_size) == facts.types
    assert len(beside) == is_beside


def test_empty_blob_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.touch()
    with pytest.raises(TrustError, match="STO-D002"):
        read_blob(path, 0)
