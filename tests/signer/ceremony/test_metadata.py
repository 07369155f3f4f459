import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.metadata import RoleFile, open_role, parse_role_name
from tests.support.ceremony import CeremonyBench


def root_of(bench: CeremonyBench) -> dict:
    data = (bench.directory / "metadata" / "1.root.json").read_bytes()
    return json.loads(data)


def check(document: object, role: str = "root") -> None:
    open_role(RoleFile(role, 0, json.dumps(document).encode()))


def test_what_we_write_is_taken(bench: CeremonyBench) -> None:
    check(root_of(bench))


@pytest.mark.parametrize(
    "change",
    [
        {"signatures": None},
        {"signatures": [{"keyid": "x", "sig": "00"}]},
        {"signed": []},
        {"more": 1},
    ],
)
def test_other_writing_is_refused(bench: CeremonyBench, change: dict) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        check(root_of(bench) | change)


def test_two_signatures_of_one_key_are_refused(bench: CeremonyBench) -> None:
    document = root_of(bench)
    document["signatures"] += document["signatures"][:1]
    with pytest.raises(TrustError, match="STO-K050"):
        check(document)


def test_metadata_of_another_role_is_refused(bench: CeremonyBench) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        check(root_of(bench), "targets")


def test_target_outside_its_folder_is_refused() -> None:
    for name in ("../x", "/x", "a//b", "a/../b", ".hidden", "a" * 200):
        signed = {
            "_type": "targets",
            "version": 1,
            "spec_version": "1.0.31",
            "expires": "2027-01-01T00:00:00Z",
            "targets": {name: {"length": 1, "hashes": {"sha256": "0" * 64}}},
        }
        with pytest.raises(TrustError, match="STO-K050"):
            check({"signatures": [], "signed": signed}, "targets")


@given(st.binary(max_size=400), st.sampled_from(["root", "targets", "snapshot"]))
def test_any_bytes_are_refused_by_code(data: bytes, role: str) -> None:
    with pytest.raises(TrustError, match="STO-K050"):
        open_role(RoleFile(role, 0, data))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("12.root.json", (12, "root")),
        ("0.root.json", None),
        ("01.root.json", None),
        ("timestamp.json", None),
        ("1.Root.json", None),
        ("1.root.json.new", None),
    ],
)
def test_versioned_names_are_read_in_one_way(name: str, expected: object) -> None:
    assert parse_role_name(name) == expected
