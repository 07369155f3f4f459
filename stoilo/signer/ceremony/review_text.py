"""A review as text: what a person reads before signing. Pure.

Trust: names and notes come from other people's files; control characters and ends of lines
are spelled out. Who joins a role is shown with the whole fingerprint: keys whose first digits
are those on somebody's paper can be had by trying.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stoilo.signer.ceremony.change_words import render_time, show_line
from stoilo.signer.ceremony.key_holders import Person
from stoilo.signer.ceremony.review import KeyChange, Review, RoleReview, TargetChange
from stoilo.signer.ceremony.signatures import Quorum
from stoilo.signer.offline_keys import group_digest


def render_review(found: Review, folder: str = "FOLDER") -> str:
    """Return the whole review, ending in what to do next."""
    return "\n".join(show_line(line) for line in _lines(found, folder))


def _lines(found: Review, folder: str) -> Iterator[str]:
    yield f"Release of {found.origin}" + (" (REHEARSAL)" if found.rehearsal else "")
    yield f"  proposed {render_time(found.created)}; this machine says {render_time(found.now)}"
    if found.note:
        yield f"  note: {_running(found.note)}"
    yield f"  builds on {found.base[:16] or 'nothing: this is the first release'}"
    if found.first_root:
        yield f"  first root {group_digest(found.first_root)}"
    for role in found.roles:
        yield ""
        yield from _role(role)
    if found.builds:
        yield ""
        yield "Built equal by:"
    for build in found.builds:
        yield (
            f"  {build.part} {build.platform}: {', '.join(build.builders)} "
            f"({len(build.builders)} of {build.threshold} needed), {build.archive[:16]}"
        )
    if found.boinc_unsigned:
        yield f"Not signed by BOINC's key yet: {', '.join(found.boinc_unsigned)}"
    yield ""
    yield from (f"Warning: {warning}" for warning in found.warnings)
    for problem in found.problems:
        yield f"PROBLEM: {problem.message} [{problem.code}]"
        if problem.hint:
            yield f"  {problem.hint}"
    yield "Proposal:"
    yield f"  {group_digest(found.digest)}"
    yield f"Next: {next_step(found, folder)}"


def _running(note: str) -> str:
    """Return a note without the room that would make it look like lines of ours."""
    return " ".join(show_line(note).split())


def _role(role: RoleReview) -> Iterator[str]:
    was = f"{role.old_version} -> " if role.old_version else ""
    yield f"{role.role} {was}{role.new_version}, ends {render_time(role.expires)}"
    for change in role.keys:
        yield from _keys(change)
    for target in role.targets:
        yield from _target(target)
    for quorum in role.quorums:
        yield f"  {_quorum(quorum)}"


def _keys(change: KeyChange) -> Iterator[str]:
    was = f"{change.old_threshold} -> " if change.old_threshold else ""
    yield f"  keys of {change.role}: {was}{change.new_threshold} of {change.keys} sign"
    for one in change.joined:
        yield f"    + {one.name}"
        yield f"        {one.whole}"
    yield from (f"    - {_person(one)}" for one in change.left)


def _target(change: TargetChange) -> Iterator[str]:
    old, new = change.old[:16] or "new", change.new[:16] or "removed"
    size = f", {change.size:,} bytes" if change.new else ""
    yield f"  {change.name}: {old} -> {new}{size}"
    yield from (f"    {line}" for line in change.words)


def _quorum(found: Quorum) -> str:
    standing = "" if found.standing == "proposed" else " (keys in force)"
    state = "signed" if found.met else "MISSING"
    signed = _names(found.signed) or "nobody"
    text = f"{state}{standing}: {len(found.signed)} of {found.threshold} needed, by {signed}"
    return text if found.met else f"{text}; can sign: {_names(found.missing)}"


def _names(people: Iterable[Person]) -> str:
    return ", ".join(_person(one) for one in people)


def _person(one: Person) -> str:
    return f"{one.name} [{one.fingerprint}]"


def next_step(found: Review, folder: str) -> str:
    """Return the command that comes next."""
    if found.problems:
        return "do not sign; mend what the problems name and review again"
    if found.complete and found.boinc_unsigned:
        return (
            f"stoilo release sign {folder} --key KEY, by the holder of BOINC's key; "
            f"for volunteers without BOINC: stoilo release publish {folder} --data DIR"
        )
    if found.complete:
        return f"stoilo release publish {folder} --data DIR"
    names = sorted(
        {
            f"{one.name} ({role.role})"
            for role in found.roles
            for quorum in role.quorums
            if not quorum.met
            for one in quorum.missing
        }
    )
    return f"stoilo release sign {folder} --key KEY, by some of: {', '.join(names)}"
