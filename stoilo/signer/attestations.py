"""Build attestations: several people say, each by his own key, that they built the same.

An attestation is a DSSE envelope over an in-toto statement with SLSA's provenance layout.
Its subjects are the digests of everything that a build gives (archive, tree manifest, bill
of materials) and its resolved dependencies name what went in (lock, commit, tools, system
libraries). What counts are the digests: all builders must agree on every one of them, and
any disagreement stops a ceremony, however many agree.

    builds/<part>/<platform>/<first 8 digits of the builder's fingerprint>.json

Trust: attestations are hostile until their signature was verified by a key that the release
names as a builder's; the name in an attestation is never believed.
Source: in-toto attestation v1, SLSA provenance v1; signing-audit §2.1, §4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    Envelope,
    PrivateKey,
    PublicKey,
    parse_envelope,
    parse_public_key,
    parse_strict_json,
    render_envelope,
    sign_envelope,
    verify_envelope,
)
from stoilo.executor.verifier.targets import BuilderFile, PartFile

MIN_BUILDERS: Final = 2
"""A build counts when so many people at least got the same bytes."""

MAX_ATTESTATION_BYTES: Final = 96 * 1024
MAX_ATTESTATIONS: Final = 32
BUILD_TYPE: Final = "urn:stoilo:build:v1"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
_SHORT_DIGITS: Final = 8
_LAUNCHER: Final = "launcher"

_Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Commit = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{40}|[0-9a-f]{64})?\Z")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class BuildInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a builder says went in, besides the lock; told to people, not compared."""

    commit: _Commit = ""  # of the source, hex; empty when unsaid
    source_date_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0  # Unix seconds


class _Digests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: _Sha256


class _Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _Text
    digest: _Digests


class _Definition(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"
):
    build_type: Literal["urn:stoilo:build:v1"]
    external_parameters: PartFile
    internal_parameters: BuildInputs
    resolved_dependencies: Annotated[tuple[_Subject, ...], msgspec.Meta(max_length=4)]


class _Builder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(pattern=r"\Aurn:stoilo:builder:[0-9a-f]{64}\Z")]


class _Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    builder: _Builder


class _Provenance(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"
):
    build_definition: _Definition
    run_details: _Run


class _Statement(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"
):
    subject: Annotated[tuple[_Subject, ...], msgspec.Meta(min_length=1, max_length=4)]
    predicate: _Provenance
    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    predicate_type: Literal["https://slsa.dev/provenance/v1"]


@dataclass(frozen=True, slots=True)
class Attestation:
    """A verified attestation: whose, and of what."""

    builder: PublicKey
    part: PartFile


class BuildEvidence(msgspec.Struct, frozen=True):
    """Who built one archive (its SHA-256) equal, by the release's names, of how many needed."""

    part: str
    platform: str
    archive: str
    builders: tuple[str, ...]
    threshold: int


def builder_short(key: PublicKey) -> str:
    """Return the first digits of a builder's fingerprint, which name his files."""
    return content_digest(key.raw)[:_SHORT_DIGITS]


def attestation_path(part: PartFile, key: PublicKey) -> str:
    """Return where a builder's attestation lies below a ceremony's or release's folder."""
    return f"builds/{part.part}/{part.platform}/{builder_short(key)}.json"


def build_inputs(part: PartFile, commit: str, source_date_epoch: int) -> BuildInputs:
    """Return what goes into a statement about `part`, whose record must be whole.

    Args:
        part: built.
        commit: of the source, hex; empty when unsaid.
        source_date_epoch: Unix seconds.

    Raises:
        UsageError: STO-U003 for a commit that is none.
        TrustError: STO-F034 for a record without tree or bill of materials.
    """
    if part.part != _LAUNCHER and not (part.tree and part.sbom):
        raise TrustError("STO-F034", f"{part.part} lacks a tree or bill of materials")
    made = {"commit": commit, "source_date_epoch": source_date_epoch}
    try:
        return msgspec.convert(made, type=BuildInputs)
    except msgspec.ValidationError as error:
        raise UsageError("STO-U003", f"not a commit or a time: {error}") from error


def make_attestation(part: PartFile, inputs: BuildInputs, key: PrivateKey) -> bytes:
    """Return the envelope by which the builder with `key` says that he built `part`.

    Serial and role, which a release gives and no build, are left out: see `_built`.
    """
    statement = _Statement(
        type=STATEMENT_TYPE,
        subject=_subjects(part),
        predicate_type=PREDICATE_TYPE,
        predicate=_Provenance(
            _Definition(BUILD_TYPE, _built(part), inputs, _dependencies(part)),
            _Run(_Builder(_builder_id(key.public))),
        ),
    )
    payload = msgspec.json.encode(statement)
    return render_envelope(
        sign_envelope(payload, [(builder_short(key.public), key)], IN_TOTO_PAYLOAD)
    )


def read_attestation(data: bytes, keys: Sequence[PublicKey]) -> Attestation:
    """Verify one attestation (hostile) by the keys of the release's builders.

    Raises ``STO-F030`` malformed or not in its one spelling, not signed by one of `keys`,
    or naming another builder than signed.
    """
    envelope = _parse_envelope(data)
    signers = [key for key in keys if _has_signed(envelope, key)]
    if not signers:
        raise TrustError("STO-F030", "an attestation is by no builder of the release")
    (builder,) = signers[:1]
    statement = _parse_statement(envelope.payload)
    definition = statement.predicate.build_definition
    part = definition.external_parameters
    if (
        statement.subject != _subjects(part)
        or definition.resolved_dependencies != _dependencies(part)
        or part != _built(part)
    ):
        raise TrustError(
            "STO-F030", "an attestation's subjects are not those of its part"
        )
    if statement.predicate.run_details.builder.id != _builder_id(
        builder
    ) or envelope.signatures[0].keyid != builder_short(builder):
        raise TrustError(
            "STO-F030", "an attestation names another builder than signed it"
        )
    return Attestation(builder, part)


def check_builds(
    part: PartFile,  # the build in question, as the release names it
    attestations: Iterable[bytes],  # envelopes, hostile
    builders: BuilderFile,  # who counts, and how many must agree
    *,
    minimum: int = MIN_BUILDERS,  # even where `builders` asks for fewer
) -> BuildEvidence:
    """Check that enough builders of the release built exactly `part`, and nobody differs.

    Raises:
        TrustError: STO-F030 for an attestation that is none; STO-F032 when one
            says other digests; STO-F030 when too few distinct builders agree.
    """
    named = {
        parse_public_key(one.key): one.name or one.key[:8] for one in builders.keys
    }
    found: set[PublicKey] = set()
    for number, data in enumerate(attestations, start=1):
        if number > MAX_ATTESTATIONS:
            raise TrustError("STO-F030", f"more than {MAX_ATTESTATIONS} attestations")
        one = read_attestation(data, tuple(named))
        # One who differs stops it, however many agree: somebody builds something else.
        if one.part != _built(part):
            raise _differs(part, one, named[one.builder])
        found.add(one.builder)
    # A list that asks for fewer cannot lower what we ask for.
    threshold = max(builders.threshold, minimum)
    if len(found) < threshold:
        raise TrustError(
            "STO-F030",
            f"{part.part} for {part.platform}: {len(found)} builder(s) attest it, "
            f"{threshold} are needed",
            hint="another builder: `stoilo release sign BUILD`",
        )
    names = tuple(sorted(named[key] for key in found))
    return BuildEvidence(
        part.part, part.platform, part.archive.sha256, names, threshold
    )


def judge_builds(
    parts: Sequence[PartFile],  # of the release, as it is or will be
    files: Mapping[str, bytes],  # attestations by their paths; hostile
    builders: BuilderFile,  # who counts, and how many must agree
    *,
    # whether a part must be attested; one that is attested is judged anyway
    required: Callable[[PartFile], bool],
    # builders that must agree even where `builders` asks for fewer
    minimum: int = MIN_BUILDERS,
    # parts of former versions, whose attestations may still lie there
    earlier: Sequence[PartFile] = (),
) -> Iterator[BuildEvidence | StoiloError]:
    """Yield who built which part equal, and everything that is wrong, not raised."""
    keys = builder_paths((*parts, *earlier), builders)
    good: dict[str, Attestation] = {}
    for name, data in files.items():
        try:
            if name not in keys:
                raise TrustError("STO-F030", f"{name} is of no builder or no part")
            good[name] = read_attestation(data, tuple(keys.values()))
            if good[name].builder != keys[name]:
                raise TrustError("STO-F030", f"{name} is by another builder")
        except StoiloError as error:
            good.pop(name, None)
            yield error
    over = {_built(one) for one in earlier}
    for part in parts:
        ours = [
            files[name]
            for name in builder_paths((part,), builders)
            # A builder's file of an earlier build lies there until he attests the new one.
            if name in good and _built(good[name].part) not in over - {_built(part)}
        ]
        if not ours and not required(part):
            continue
        try:
            yield check_builds(part, ours, builders, minimum=minimum)
        except StoiloError as error:
            yield error


def builder_paths(
    parts: Iterable[PartFile], builders: BuilderFile
) -> dict[str, PublicKey]:
    """Return where attestations of `parts` may lie, and whose each must be."""
    keys = [parse_public_key(one.key) for one in builders.keys]
    return {attestation_path(part, key): key for part in parts for key in keys}


def _differs(part: PartFile, one: Attestation, name: str) -> TrustError:
    ours, his = msgspec.structs.asdict(_built(part)), msgspec.structs.asdict(one.part)
    fields = ", ".join(field for field, value in ours.items() if his[field] != value)
    return TrustError(
        "STO-F032",
        f"{part.part} for {part.platform}: builder {name!r} got another {fields}",
        hint="`stoilo flavor compare` names the files; sign nothing before",
    )


def _built(part: PartFile) -> PartFile:
    """Return what of a part's record a build decides: all but serial and role."""
    return msgspec.structs.replace(part, serial=1, role="targets")


def _subjects(part: PartFile) -> tuple[_Subject, ...]:
    """Return what the build gave, by name and digest."""
    base = f"{part.part}/{part.platform}"
    rows = [(part.archive.name, part.archive.sha256)]
    rows += [(f"{base}.tree", part.tree)] if part.tree else []
    rows += [(f"{base}.sbom.json", part.sbom)] if part.sbom else []
    return tuple(_Subject(name, _Digests(digest)) for name, digest in rows)


def _dependencies(part: PartFile) -> tuple[_Subject, ...]:
    """Return what went in and is compared: the lock, the flavor's manifest."""
    rows = [("lock", part.lock), ("manifest", part.flavor)]
    return tuple(_Subject(name, _Digests(digest)) for name, digest in rows if digest)


def _builder_id(key: PublicKey) -> str:
    return f"urn:stoilo:builder:{content_digest(key.raw)}"


def _has_signed(envelope: Envelope, key: PublicKey) -> bool:
    try:
        verify_envelope(envelope, [key])
    except TrustError:
        return False
    return True


def _parse_envelope(data: bytes) -> Envelope:
    """Return an envelope with one signature, in the one spelling that we write."""
    if len(data) > MAX_ATTESTATION_BYTES:
        raise TrustError("STO-F030", "an attestation is too large")
    try:
        envelope = parse_envelope(data)
    except TrustError as error:
        raise TrustError("STO-F030", f"an attestation is malformed: {error}") from error
    # Two spellings of one statement would let a byte change without being seen.
    if len(envelope.signatures) != 1 or render_envelope(envelope) != data:
        raise TrustError("STO-F030", "an attestation is not in its one spelling")
    return envelope


def _parse_statement(payload: bytes) -> _Statement:
    """Return a verified payload's statement."""
    try:
        document = parse_strict_json(
            payload, max_bytes=MAX_ATTESTATION_BYTES, what="build attestation"
        )
        return msgspec.convert(document, type=_Statement)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-F030", f"an attestation is malformed: {error}") from error
