"""What speaks for a release besides its metadata: builders, BOINC's key, the log.

Trust: all of it is hostile; builders and log policy come out of verified targets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from stoilo.audit.format.facts import NamedDigest
from stoilo.audit.format.note import parse_note
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.format.proof import (
    RELEASE_PROOF_FILE,
    RELEASE_RECORD_FILE,
    LoggedRelease,
    check_release_proof,
    parse_proof,
)
from stoilo.core.boinc.codesign import BoincPublicKey
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.signatures import parse_public_key
from stoilo.executor.verifier.installation import parse_built
from stoilo.executor.verifier.targets import (
    BuilderFile,
    PartFile,
    TrustedRelease,
    part_target,
)
from stoilo.signer.attestations import (
    MAX_ATTESTATION_BYTES,
    MIN_BUILDERS,
    BuildEvidence,
    attestation_path,
    check_builds,
    read_attestation,
)
from stoilo.signer.ceremony.boinc_files import (
    BOINC_FOLDER,
    BOINC_KEY_FILE,
    check_boinc_files,
    is_boinc_file,
    signature_name,
)
from stoilo.signer.ceremony.transcript import (
    MAX_TRANSCRIPT_BYTES,
    TRANSCRIPT_FILE,
    TranscriptLine,
    parse_transcript,
)
from stoilo.signer.pairing import check_built, check_launcher
from stoilo.signer.published.contents import Contents, read_program
from stoilo.signer.published.history import History
from stoilo.signer.published.places import Place

MAX_RECORD_BYTES: Final = 16 * 1024
_MAX_SMALL: Final = 4096
_BUILD = re.compile(r"builds/[a-z0-9-]{1,32}/[a-z0-9_]+-[a-z]+/[0-9a-f]{8}\.json")

Found = set[str]
"""Names of files that were accounted for; each check adds those that it judged."""


def check_attestations(
    place: Place,
    contents: Contents,
    builders: BuilderFile,
    found: Found,
    *,
    required: bool,
) -> tuple[BuildEvidence, ...]:
    """Check every build attestation beside the release.

    An attestation of a part that an earlier version of this release named is left where it
    is; one of anything else is refused.

    Args:
        place: where the release lies.
        contents: its targets.
        builders: who may attest, and how many must agree.
        found: gets the names of the files judged.
        required: whether every part must be attested; not for development roots, which
            people build and run on one machine.

    Raises:
        TrustError: STO-F030 to STO-F033.
    """
    files = _read_attestations(place, contents, builders)
    found.update(files)
    evidence = []
    for part in contents.parts():
        ours = _matching(part, files, contents, builders)
        if ours or required:
            minimum = MIN_BUILDERS if required else 1
            evidence.append(check_builds(part, ours, builders, minimum=minimum))
    return tuple(evidence)


def _read_attestations(
    place: Place, contents: Contents, builders: BuilderFile
) -> Mapping[str, bytes]:
    """Return the attestations that are there, by name."""
    names = place.names()
    keys = [parse_public_key(one.key) for one in builders.keys]
    parts = (*contents.parts(), *contents.former_parts())
    known = {attestation_path(part, key) for part in parts for key in keys}
    listed = (
        known if names is None else {name for name in names if _BUILD.fullmatch(name)}
    )
    if listed - known:
        raise TrustError(
            "STO-F031", f"{min(listed - known)} is of no builder or no part"
        )
    rows = ((name, place.read(name, MAX_ATTESTATION_BYTES)) for name in sorted(listed))
    return {name: data for name, data in rows if data is not None}


def _matching(
    part: PartFile,
    files: Mapping[str, bytes],
    contents: Contents,
    builders: BuilderFile,
) -> list[bytes]:
    """Return the attestations at `part`'s place, without those of its predecessors."""
    keys = [parse_public_key(one.key) for one in builders.keys]
    earlier = {_without_serial(one) for one in contents.former_parts()}
    earlier.discard(_without_serial(part))
    ours = []
    for key in keys:
        path = attestation_path(part, key)
        if path not in files:
            continue
        attested = read_attestation(files[path], keys)
        if attested.builder != key:
            raise TrustError("STO-F031", f"{path} is by another builder than it says")
        # A builder's file of an earlier build lies there until he attests the
        # new one.
        if _without_serial(attested.part) not in earlier:
            ours.append(files[path])
    return ours


def _without_serial(part: PartFile) -> tuple[str, ...]:
    return (part.part, part.platform, part.version, part.archive.sha256, part.tree)


def check_pairs(
    place: Place,
    history: History,
    contents: Contents,
    trust: TrustedRelease,
    built: Mapping[str, bytes],
) -> None:
    """Check that launchers start the release's verifiers, and those know its root.

    Args:
        place: where the release lies.
        history: its metadata.
        contents: its targets.
        trust: what it says.
        built: platform → what that verifier was built with.

    Raises:
        TrustError: STO-F034, STO-F035, STO-F001.
    """
    verifiers = {
        one.platform: one for one in contents.parts() if one.part == "verifier"
    }
    for part in contents.parts():
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

    Raises ``STO-K075``, ``STO-K076``.
    """
    md5s = {
        one.name: one.md5
        for one in contents.current.values()
        if is_boinc_file(one.name)
    }
    names = place.names()
    wanted = {BOINC_KEY_FILE, *(signature_name(target) for target in md5s)}
    listed = wanted
    if names is not None:
        prefix = f"{BOINC_FOLDER}/"
        listed = {
            name.removeprefix(prefix) for name in names if name.startswith(prefix)
        }
    rows = (
        (name, place.read(f"{BOINC_FOLDER}/{name}", _MAX_SMALL))
        for name in sorted(listed)
    )
    files = {name: data for name, data in rows if data is not None}
    found.update(f"{BOINC_FOLDER}/{name}" for name in files)
    return check_boinc_files(files, md5s)


def read_transcript_of(place: Place, found: Found) -> tuple[TranscriptLine, ...] | None:
    """Return the ceremony's transcript, None when none was published; ``STO-K077``."""
    data = place.read(TRANSCRIPT_FILE, MAX_TRANSCRIPT_BYTES)
    if data is None:
        return None
    found.add(TRANSCRIPT_FILE)
    return parse_transcript(data)


def check_log(
    place: Place,
    history: History,
    contents: Contents,
    trust: TrustedRelease,
    transcript: str,
    found: Found,
) -> LoggedRelease | None:
    """Check the log's record of this release and its proof; None when there is neither.

    Args:
        place: where the release lies.
        history: its metadata.
        contents: its targets.
        trust: what it says: origin, and whom of the log and its witnesses to believe.
        transcript: SHA-256 of the ceremony's transcript, empty for none.
        found: gets the names of the files judged.

    Raises:
        TrustError: STO-K099 when only one of the two is there or they tell of another
            release; the log's codes.
    """
    record = place.read(RELEASE_RECORD_FILE, MAX_RECORD_BYTES)
    proof = place.read(RELEASE_PROOF_FILE, BOUNDS.proof_bytes)
    if record is None and proof is None:
        return None
    # One without the other proves nothing and looks like something.
    if record is None or proof is None:
        raise TrustError(
            "STO-K099", "the release has a log record or a proof, not both"
        )
    found.update((RELEASE_RECORD_FILE, RELEASE_PROOF_FILE))
    policy = trust.log_policy.current
    logged = check_release_proof(record, proof, policy)
    _check_signers(parse_proof(proof).checkpoint, policy)
    told = logged.record
    if (
        told.metadata != _metadata_rows(history)
        or told.parts != _part_rows(contents)
        or told.transcript != transcript
        or told.origin != trust.origin
    ):
        raise TrustError(
            "STO-K099",
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
        raise TrustError("STO-K099", "the release's checkpoint is signed by a stranger")


def _metadata_rows(history: History) -> tuple[NamedDigest, ...]:
    """Return the offline roles in force as the log's record names them."""
    last = {one.role: one for one in (*history.targets, *history.delegated)}
    rows = [history.roots[-1], *last.values()]
    return tuple(
        NamedDigest(one.path.removeprefix("metadata/"), content_digest(one.data))
        for one in sorted(rows, key=lambda one: one.role)
    )


def _part_rows(contents: Contents) -> tuple[NamedDigest, ...]:
    """Return the parts as the log's record names them."""
    return tuple(
        NamedDigest(part_target(part.part, part.platform), part.archive.sha256)
        for part in contents.parts()
    )
