"""What speaks for a release besides its metadata: builders, BOINC's key, the log.

Trust: all of it is hostile; builders and log policy come out of verified targets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from stoilo.audit.format.facts import NamedDigest
from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import parse_proof
from stoilo.audit.format.records import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    LoggedRelease,
    check_release_proof,
)
from stoilo.core.boinc.codesign import BoincPublicKey
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.types import BOUNDS
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles, parse_built
from stoilo.signer.attestations import (
    MAX_ATTESTATION_BYTES,
    MIN_BUILDERS,
    BuildEvidence,
    builder_paths,
    judge_builds,
)
from stoilo.signer.ceremony.boinc_files import (
    BOINC_KEY_FILE,
    check_boinc_files,
    is_boinc_file,
    signature_name,
)
from stoilo.signer.ceremony.built_parts import check_built, check_launcher
from stoilo.signer.ceremony.metadata import RoleFile, parse_role_name
from stoilo.signer.ceremony.transcript import (
    MAX_TRANSCRIPT_BYTES,
    TRANSCRIPT_FILE,
    TranscriptLine,
    parse_transcript,
)
from stoilo.signer.published.contents import Contents, read_program
from stoilo.signer.published.history import History
from stoilo.signer.published.places import Place

MAX_RECORD_BYTES: Final = 16 * 1024
_MAX_SMALL: Final = 4096
_BOINC = re.compile(r"boinc/.*", re.DOTALL)
_BUILD = re.compile(r"builds/[a-z0-9-]{1,32}/[a-z0-9_]+-[a-z]+/[0-9a-f]{8}\.json")

Found = set[str]
"""Names of files that were accounted for; each check adds those that it judged."""


def _read_beside(
    place: Place,
    wanted: Collection[str],  # what there may be, where files cannot be listed
    belongs: re.Pattern[str],  # which of the listed files are of this kind
    limit: int,  # bytes of one
    found: Found,
) -> dict[str, bytes]:
    """Return the files of one kind that lie beside the metadata, by name."""
    names = place.names()
    listed = wanted if names is None else filter(belongs.fullmatch, names)
    rows = ((name, place.read(name, limit)) for name in sorted(listed))
    files = {name: data for name, data in rows if data is not None}
    found.update(files)
    return files


def check_attestations(
    place: Place,  # where the release lies
    contents: Contents,  # its targets
    trust: TrustedRelease,  # what it says: its parts, and who may attest
    found: Found,  # gets the names of the files judged
) -> tuple[BuildEvidence, ...]:
    """Check every build attestation beside the release.

    An attestation of a part that an earlier version of this release named is left where it
    is; one of anything else is refused. Every part must be attested, but for those of
    development and rehearsal, which one person builds and runs.

    Raises:
        TrustError: STO-F030.
    """
    earlier, real = contents.former_parts(), not (trust.development or trust.rehearsal)
    known = builder_paths((*trust.parts, *earlier), trust.builders)
    evidence = []
    for one in judge_builds(
        trust.parts,
        _read_beside(place, known, _BUILD, MAX_ATTESTATION_BYTES, found),
        trust.builders,
        required=lambda _: real,
        minimum=MIN_BUILDERS if real else 1,
        earlier=earlier,
    ):
        if isinstance(one, StoiloError):
            raise one
        evidence.append(one)
    return tuple(evidence)


def check_pairs(
    place: Place,  # where the release lies
    history: History,  # its metadata
    contents: Contents,  # its targets
    trust: TrustedRelease,  # what it says
    built: Mapping[str, bytes],  # platform → what that verifier was built with
) -> None:
    """Check that launchers start the release's verifiers, and those know its root.

    Raises:
        TrustError: STO-F034, STO-F035, STO-F006.
    """
    verifiers = {one.platform: one for one in trust.parts if one.part == "verifier"}
    for part in trust.parts:
        if part.part == "launcher" and part.platform in verifiers:
            program = read_program(place, contents, part)
            check_launcher(part, program, verifiers[part.platform])
    for platform, part in verifiers.items():
        check_built(
            parse_built(built[platform]),
            part,
            roots=tuple(one.data for one in history.roots),
            origin=trust.origin,
            rehearsal=trust.rehearsal,
            development=trust.development,
        )


def check_boinc(
    place: Place, contents: Contents, found: Found
) -> BoincPublicKey | None:
    """Check BOINC's signatures; None when the release has none.

    Raises ``STO-K076``.
    """
    md5s = {
        one.name: one.md5
        for one in contents.current.values()
        if is_boinc_file(one.name)
    }
    wanted = {BOINC_KEY_FILE, *(signature_name(target) for target in md5s)}
    files = _read_beside(
        place, [f"boinc/{name}" for name in wanted], _BOINC, _MAX_SMALL, found
    )
    return check_boinc_files(
        {name.removeprefix("boinc/"): data for name, data in files.items()}, md5s
    )


def read_transcript_of(place: Place, found: Found) -> tuple[TranscriptLine, ...] | None:
    """Return the ceremony's transcript, None when none was published; ``STO-K050``."""
    data = place.read(TRANSCRIPT_FILE, MAX_TRANSCRIPT_BYTES)
    if data is None:
        return None
    found.add(TRANSCRIPT_FILE)
    return parse_transcript(data)


def check_log(
    place: Place,  # where the release lies
    files: ReleaseFiles,  # its metadata
    # what it says: origin, and whom of the log and its witnesses to believe
    trust: TrustedRelease,
    transcript: str,  # SHA-256 of the ceremony's transcript, empty for none
    found: Found,  # gets the names of the files judged
) -> LoggedRelease | None:
    """Check the log's record of this release and its proof; None when there is neither.

    Raises:
        TrustError: STO-L141 when only one of the two is there or they tell of another
            release; the log's codes.
    """
    record = place.read(RELEASE_RECORD_FILE, MAX_RECORD_BYTES)
    proof = place.read(RELEASE_PROOF_FILE, BOUNDS.proof_bytes)
    if record is None and proof is None:
        return None
    # One without the other proves nothing and looks like something.
    if record is None or proof is None:
        raise TrustError(
            "STO-L141", "the release has a log record or a proof, not both"
        )
    found.update((RELEASE_RECORD_FILE, RELEASE_PROOF_FILE))
    policy = trust.log_policy.current
    logged = check_release_proof(record, proof, policy)
    _check_signers(parse_proof(proof).checkpoint, policy)
    told = logged.record
    if (
        told.metadata != metadata_rows(files)
        or told.parts != part_rows(trust)
        or told.transcript != transcript
        or told.origin != trust.origin
    ):
        raise TrustError(
            "STO-L141",
            "the log tells of another release than this one",
            hint="if it was published just now, the log follows within a minute while "
            "`stoilo up` runs",
        )
    return logged


def _check_signers(checkpoint: bytes, policy: LogPolicy) -> None:
    """Refuse a checkpoint with signatures by nobody whom the policy names."""
    # A log may carry them; here every byte must be of use, or a changed one would not show.
    named = [*policy.logs, *(witness.key for witness in policy.witnesses)]
    keys = {(key.name, key.key_id) for key in named}
    lines = parse_note(checkpoint).signatures
    if any((line.name, line.key_id) not in keys for line in lines):
        raise TrustError("STO-L141", "the release's checkpoint is signed by a stranger")


def metadata_rows(files: ReleaseFiles) -> tuple[NamedDigest, ...]:
    """Return the newest file of each role that people sign, as the log's record has them."""
    newest: dict[str, RoleFile] = {}
    for name, data in files.files:
        folder, _, base = name.partition("/")
        parsed = parse_role_name(base) if folder == "metadata" else None
        if parsed is None or parsed[1] == "snapshot":
            continue
        file = RoleFile(parsed[1], parsed[0], data)
        newest[file.role] = max(
            newest.get(file.role, file), file, key=lambda one: one.version
        )
    return tuple(
        NamedDigest(one.name, content_digest(one.data))
        for _, one in sorted(newest.items())
    )


def part_rows(trust: TrustedRelease) -> tuple[NamedDigest, ...]:
    """Return the parts as the log's record names them."""
    return tuple(NamedDigest(part.target, part.archive.sha256) for part in trust.parts)
