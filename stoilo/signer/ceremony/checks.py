"""Why a ceremony may not be signed: every reason with its own code. Pure.

Each check yields errors instead of raising them, so that a person sees all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuf.api.metadata import Root, Targets

from stoilo.core.errors import StoiloError, TrustError
from stoilo.executor.verifier.targets import (
    BuilderFile,
    PartFile,
)
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    REHEARSAL_MARK,
    parse_built,
)
from stoilo.signer.attestations import BuildEvidence, judge_builds
from stoilo.signer.ceremony.base_release import expired_roles
from stoilo.signer.ceremony.built_parts import check_built, check_launcher, read_tree
from stoilo.signer.ceremony.content_checks import (
    check_content,
    named_targets,
    release_parts,
)
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import check_role_keys
from stoilo.signer.ceremony.lists import read_list
from stoilo.signer.ceremony.metadata import open_role, open_root, open_targets
from stoilo.signer.ceremony.proposal import NewTarget, Proposal
from stoilo.signer.ceremony.signatures import authorities, stray_signatures
from stoilo.signer.roles import (
    DELEGATED,
    OFFLINE,
    ceremony_bounds,
    role_limits,
)


def check_ceremony(ceremony: Ceremony, now: int) -> Iterator[StoiloError]:
    """Yield every reason not to sign, but those about builds (`find_builds`).

    Args:
        ceremony: hostile.
        now: Unix seconds.
    """
    proposal = ceremony.proposal
    if not proposal.metadata:
        yield TrustError(
            "STO-K068", "the folder proposes nothing", hint="`stoilo release request`"
        )
        return
    yield from _check_time(ceremony, now)
    yield from _check_base(ceremony)
    yield from _check_versions(proposal)
    yield from _check_marks(ceremony)
    yield from _check_keys(proposal)
    yield from _check_lifetimes(proposal, ceremony.about.created, now)
    yield from check_content(ceremony)
    for file in proposal.metadata:
        # Readers ignore it; here it is a mistake or an attempt, and somebody
        # should know.
        for keyid in stray_signatures(proposal, file):
            yield TrustError(
                "STO-K050",
                f"{file.name} has a signature ({keyid[:8]}) that does not verify",
            )
    yield from _check_dependents(proposal)


def _check_time(ceremony: Ceremony, now: int) -> Iterator[StoiloError]:
    bounds, created = ceremony_bounds(), ceremony.about.created
    # Lifetimes count from there: a proposal from the future would live too long.
    if created > now + bounds.clock_margin_s:
        yield TrustError("STO-K058", "the proposal is from the future of this machine")
    if now > created + bounds.life_s:
        yield TrustError(
            "STO-K058", f"the proposal is more than {bounds.life_days} days old"
        )


def _check_base(ceremony: Ceremony) -> Iterator[StoiloError]:
    base = ceremony.proposal.base
    if base is None:
        return
    if ceremony.about.base != base.digest:
        yield TrustError("STO-K052", "current/ is not the release this was made for")
    # Said on purpose, shown as a warning.
    if not ceremony.about.renews_expired:
        yield from expired_roles(base, ceremony.about.created)


def _check_versions(proposal: Proposal) -> Iterator[StoiloError]:
    for file in proposal.metadata:
        known = None if proposal.base is None else proposal.base.role(file.role)
        wanted = 1 if known is None else known.version + 1
        if file.version != wanted:
            yield TrustError(
                "STO-K052", f"{file.name}: the next version of {file.role} is {wanted}"
            )
    for role in OFFLINE:
        if proposal.newest(role) is None:
            yield TrustError("STO-K068", f"a release needs its role {role}")


def _check_marks(ceremony: Ceremony) -> Iterator[StoiloError]:
    """A root is marked as what the folder says, and as its predecessor."""
    file = ceremony.proposal.newest("root")
    if file is None:
        return
    root = open_root(file).signed
    marks = set(root.unrecognized_fields)
    if DEVELOPMENT_MARK in marks:
        yield TrustError("STO-K063", "a development root is not signed in a ceremony")
    # A rehearsal signed with real keys must not become a release.
    if (REHEARSAL_MARK in marks) != ceremony.about.rehearsal:
        yield TrustError("STO-K063", "root and folder disagree about a rehearsal")
    if marks - {DEVELOPMENT_MARK, REHEARSAL_MARK}:
        yield TrustError("STO-K063", "the root has fields that are not ours")
    if not root.consistent_snapshot:
        yield TrustError("STO-K050", "the root does not name files by their digests")
    base = ceremony.proposal.base
    if base is not None and set(base.root.unrecognized_fields) != marks:
        yield TrustError("STO-K063", "the root's marks would change")


def _check_keys(proposal: Proposal) -> Iterator[StoiloError]:
    root, targets = proposal.newest("root"), proposal.newest("targets")
    if root is None or targets is None:
        return
    try:
        check_role_keys(open_root(root).signed, open_targets(targets).signed)
    except StoiloError as error:
        yield error


def _check_lifetimes(
    proposal: Proposal, created: int, now: int
) -> Iterator[StoiloError]:
    """Nothing lives longer than its role may, and nothing has ended already."""
    for file in proposal.metadata:
        signed: Root | Targets = open_role(file).signed
        ends = int(signed.expires.timestamp())
        limit = created + role_limits(file.role).lifetime_s
        if ends <= now:
            yield TrustError("STO-K058", f"{file.name} would have expired already")
        if ends > limit + ceremony_bounds().clock_margin_s:
            yield TrustError("STO-K058", f"{file.name} would live too long")


def _check_dependents(proposal: Proposal) -> Iterator[StoiloError]:
    if proposal.base is None:
        return
    for role in ("targets", *DELEGATED):
        file = proposal.newest(role)
        if file is None or proposal.role(role) is not None:
            continue
        metadata = open_targets(file)
        for _, owner in authorities(proposal, role):
            result = owner.get_verification_result(
                role, metadata.signed_bytes, metadata.signatures
            )
            if not result:
                yield TrustError(
                    "STO-K068", f"{role} must be signed anew: its keys change"
                )


def find_builds(
    ceremony: Ceremony,
) -> tuple[tuple[BuildEvidence, ...], tuple[StoiloError, ...]]:
    """Return who built each new archive equal, and which were not.

    An archive that the published release holds already is not asked about again.
    """
    proposal = ceremony.proposal
    try:
        builders = read_list(proposal.target, BuilderFile)
        found = tuple(
            judge_builds(
                release_parts(proposal),
                {f"builds/{name}": data for name, data in ceremony.builds},
                builders,
                required=lambda part: _is_new(proposal, part),
            )
        )
    except StoiloError:
        return (), ()  # said by `check_content`
    return (
        tuple(one for one in found if isinstance(one, BuildEvidence)),
        tuple(one for one in found if isinstance(one, StoiloError)),
    )


def _is_new(proposal: Proposal, part: PartFile) -> bool:
    base = proposal.base
    if base is None:
        return True
    record = f"{part.target}.json"
    return base.info(record) != named_targets(proposal).get(record)


MAX_PROGRAM_BYTES: Final = 16 * 1024**2


def check_pairs(ceremony: Ceremony) -> Iterator[StoiloError]:
    """Yield what does not belong together, among the new launchers and verifiers.

    Args:
        ceremony: its files hashed already, hostile.
    """
    try:
        parts = release_parts(ceremony.proposal)
    except StoiloError:
        return  # said by `check_content`
    new = {one.name: one for one in ceremony.proposal.targets}
    for verifier in (one for one in parts if one.part == "verifier"):
        archive = new.get(f"verifier/{verifier.platform}.tar")
        program = new.get(f"launcher/{verifier.platform}")
        try:
            if archive is not None:
                _check_verifier(ceremony, verifier, archive)
            for launcher in parts:
                if (launcher.part, launcher.platform) != (
                    "launcher",
                    verifier.platform,
                ):
                    continue
                if program is not None:
                    with program.open() as stream:
                        data = stream.read(MAX_PROGRAM_BYTES + 1)
                    check_launcher(launcher, data, verifier)
                elif archive is not None:
                    raise _left_behind(launcher)
        except StoiloError as error:
            yield error


def _left_behind(launcher: PartFile) -> TrustError:
    """Return the refusal of a launcher that holds the digest of the old verifier."""
    return TrustError(
        "STO-F034",
        f"the launcher for {launcher.platform} stays, and starts the verifier before "
        "this one",
        hint="publish the verifier and the launcher of one `stoilo release build`",
    )


def _check_verifier(ceremony: Ceremony, part: PartFile, file: NewTarget) -> None:
    """Check that a new verifier knows a published root; raises ``STO-F034``, ``STO-F035``."""
    # An archive that holds no readable tree is not judged here: no builder's tool attests one.
    try:
        with file.open() as stream:
            data = read_tree(stream, part.tree)
    except TrustError:
        return
    if not data:
        raise TrustError("STO-F034", f"the verifier for {part.platform} knows no root")
    base = ceremony.proposal.base
    check_built(
        parse_built(data),
        part,
        roots=() if base is None else tuple(one.data for one in base.roots),
        origin=ceremony.about.origin,
        rehearsal=ceremony.about.rehearsal,
        development=DEVELOPMENT_MARK in base.root.unrecognized_fields
        if base
        else False,
    )
