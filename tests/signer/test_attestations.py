import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.signatures import PrivateKey, render_envelope, sign_envelope
from stoilo.executor.verifier.targets import (
    ArchiveFile,
    BuilderFile,
    BuilderKey,
    PartFile,
)
from stoilo.signer.attestations import (
    BuildInputs,
    builder_short,
    check_builds,
    make_attestation,
    read_attestation,
)

ADA, BO, CY, EVE = (PrivateKey.generate() for _ in range(4))
PART = PartFile(
    format="stoilo-part/1",
    part="numeric",
    platform="x86_64-linux",
    version="0.2.0",
    serial=7,
    archive=ArchiveFile("numeric-x86_64-linux.tar.xz", 1234, "aa" * 32),
    tree="bb" * 32,
    python="3.11",
    flavor="cc" * 32,
    sbom="dd" * 32,
    lock="ee" * 32,
)
INPUTS = BuildInputs(
    commit="ab" * 20,
    source_date_epoch=315532800,
)
BUILDERS = BuilderFile(
    tuple(
        BuilderKey(key.public.raw.hex(), name)
        for key, name in ((ADA, "ada"), (BO, "bo"), (CY, "cy"))
    ),
    2,
)
GOOD = make_attestation(PART, INPUTS, ADA)


def attest(*keys: PrivateKey, part: PartFile = PART) -> list[bytes]:
    return [make_attestation(part, INPUTS, key) for key in keys]


def refusal(attestations: list[bytes], part: PartFile = PART) -> str:
    with pytest.raises(TrustError) as caught:
        check_builds(part, attestations, BUILDERS)
    return caught.value.code


def test_two_of_three_builders_are_enough() -> None:
    evidence = check_builds(PART, attest(CY, ADA), BUILDERS)
    assert evidence.builders == ("ada", "cy")
    assert (evidence.threshold, evidence.archive) == (2, "aa" * 32)
    assert read_attestation(GOOD, [ADA.public]).part.tree == PART.tree


def test_one_builder_is_too_few() -> None:
    assert refusal(attest(ADA)) == "STO-F030"


def test_one_builder_twice_counts_once() -> None:
    assert refusal(attest(ADA, ADA)) == "STO-F030"


def test_release_cannot_ask_for_fewer_than_two() -> None:
    lax = msgspec.structs.replace(BUILDERS, threshold=0)
    with pytest.raises(TrustError, match="STO-F030"):
        check_builds(PART, attest(ADA), lax)


def test_serial_is_the_releases_not_the_builds() -> None:
    later = msgspec.structs.replace(PART, serial=8)
    assert check_builds(later, attest(ADA, BO), BUILDERS).builders == ("ada", "bo")


@pytest.mark.parametrize("field", ["tree", "sbom", "lock", "flavor"])
def test_builder_who_got_another_digest_stops_it(field: str) -> None:
    other = msgspec.structs.replace(PART, **{field: "00" * 32})
    assert refusal([*attest(ADA, BO), *attest(CY, part=other)]) == "STO-F032"


def test_builder_who_got_another_archive_stops_it_by_name() -> None:
    archive = msgspec.structs.replace(PART.archive, sha256="00" * 32)
    other = msgspec.structs.replace(PART, archive=archive)
    with pytest.raises(TrustError, match="'cy' got another archive"):
        check_builds(PART, [*attest(ADA, BO), *attest(CY, part=other)], BUILDERS)


def test_stranger_is_no_builder() -> None:
    assert refusal(attest(ADA, BO, EVE)) == "STO-F030"


def test_statement_naming_another_builder_is_refused() -> None:
    payload = base64.b64decode(msgspec.json.decode(GOOD)["payload"])
    short = builder_short(EVE.public)
    forged = render_envelope(
        sign_envelope(payload, [(short, EVE)], "application/vnd.in-toto+json")
    )
    with pytest.raises(TrustError, match="STO-F030"):
        read_attestation(forged, [EVE.public])


@pytest.mark.parametrize(
    "change",
    [
        {"subject": []},
        {"subject": [{"name": "x", "digest": {"sha256": "00" * 32}}]},
        {"predicateType": "https://example.org/other"},
        {"_type": "x"},
        {"more": 1},
    ],
)
def test_signed_statement_of_another_shape_is_refused(change: dict) -> None:
    statement = msgspec.json.decode(
        base64.b64decode(msgspec.json.decode(GOOD)["payload"])
    )
    payload = msgspec.json.encode({**statement, **change})
    envelope = sign_envelope(
        payload, [(builder_short(ADA.public), ADA)], "application/vnd.in-toto+json"
    )
    with pytest.raises(TrustError, match="STO-F030"):
        read_attestation(render_envelope(envelope), [ADA.public])


def test_statement_is_in_toto_with_slsa_provenance() -> None:
    statement = msgspec.json.decode(
        base64.b64decode(msgspec.json.decode(GOOD)["payload"])
    )
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert [row["digest"]["sha256"][:2] for row in statement["subject"]] == [
        "aa",
        "bb",
        "dd",
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["internalParameters"]["commit"] == "ab" * 20
    assert [row["name"] for row in definition["resolvedDependencies"]] == [
        "lock",
        "manifest",
    ]


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_any_changed_byte_is_refused(at: int, flip: int) -> None:
    data = GOOD[:at] + bytes([GOOD[at] ^ flip]) + GOOD[at + 1 :]
    with pytest.raises(TrustError, match=r"STO-F03[01]"):
        read_attestation(data, [ADA.public])


@given(st.binary(max_size=300))
def test_any_bytes_are_no_attestation(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-F030"):
        read_attestation(data, [ADA.public])
