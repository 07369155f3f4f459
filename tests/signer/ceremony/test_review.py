import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.metadata import RoleFile
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import withdraw
from stoilo.signer.ceremony.review import render_review, review
from stoilo.signer.release_status import read_status
from tests.support.ceremony import DAY_S, NOW, CeremonyBench, new_key


def holder(key) -> KeyHolder:
    return KeyHolder(key.name, key.ed25519().public)


def text(ceremony: Ceremony, now: int = NOW) -> str:
    return render_review(review(ceremony, now))


def test_rotation_names_who_joins_who_leaves_and_both_quorums(
    bench: CeremonyBench,
) -> None:
    dora = new_key("root", "dora")
    change = RoleChange("root", (holder(bench.keys["root"][2]),), (holder(dora),))
    shown = text(bench.sign(bench.request(Changes(keys=(change,))), [dora]))
    assert "+ dora" in shown
    assert "- cleo" in shown
    assert "MISSING (keys in force): 0 of 2 needed, by nobody" in shown
    assert "MISSING: 1 of 2 needed, by dora" in shown


def test_lower_threshold_is_warned_of(bench: CeremonyBench) -> None:
    five = tuple(holder(new_key("root", name)) for name in ("dora", "emil"))
    bench.keys["root"] += [new_key("root", "fay")]
    raised = RoleChange(
        "root", add=(*five, holder(bench.keys["root"][-1])), threshold=3
    )
    ceremony = bench.request(Changes(keys=(raised,)))
    bench.publish(ceremony)
    lower = bench.request(Changes(keys=(RoleChange("root", threshold=2),)))
    assert any("fewer" in warning for warning in review(lower, NOW).warnings)


def test_changed_target_shows_old_and_new_digest(bench: CeremonyBench) -> None:
    ceremony = bench.request(
        Changes(put=(NewTarget.of("executor/floors.json", b'{"verifier":4}'),))
    )
    (change,) = review(ceremony, NOW).roles[0].targets
    assert len(change.old) == len(change.new) == 64
    assert change.words == (
        "- oldest verifier that may work: serial 1",
        "+ oldest verifier that may work: serial 4",
    )


def test_role_that_ends_soon_and_is_not_renewed_is_warned_of(
    bench: CeremonyBench,
) -> None:
    later = NOW + 130 * DAY_S
    ceremony = bench.request(Changes(renew=("policy",)), later)
    warnings = review(ceremony, later).warnings
    assert any(warning.startswith("targets ends") for warning in warnings)
    assert not any(warning.startswith("policy ends") for warning in warnings)


def test_foreign_names_cannot_command_the_terminal(bench: CeremonyBench) -> None:
    ceremony = bench.request(Changes(renew=("policy",)))
    about = msgspec.structs.replace(ceremony.about, note="\x1b[2Jsigned by all")
    assert "\x1b" not in text(replace(ceremony, about=about))


@pytest.mark.parametrize("end", ["\n", "\r\n", " " * 200, "\u2028"])
def test_note_cannot_look_like_lines_of_the_review(
    bench: CeremonyBench, end: str
) -> None:
    ceremony = bench.request(Changes(renew=("policy",)))
    forged = f"first{end}Proposal:{end}  0000 0000"
    about = msgspec.structs.replace(ceremony.about, note=forged)
    shown = text(replace(ceremony, about=about))
    assert shown.splitlines().count("Proposal:") == 1
    assert (
        "  " not in next(line for line in shown.splitlines() if "note:" in line).strip()
    )


def test_name_in_a_target_cannot_look_like_lines_of_the_review(
    bench: CeremonyBench,
) -> None:
    key = "00" * 32
    document = {"keys": [{"key": key, "name": "rex\nProposal:\n  0000"}]}
    one = NewTarget.of("reviewers/keys.json", json.dumps(document).encode())
    shown = text(bench.request(Changes(put=(one,))))
    assert shown.splitlines().count("Proposal:") == 1


def test_nothing_is_hidden_behind_many_lines(bench: CeremonyBench) -> None:
    digests = [f"{number:064x}" for number in range(1, 200)]
    document = {"digests": [*digests, "f" * 64]}
    one = NewTarget.of("revocation/denied.json", json.dumps(document).encode())
    assert f"+ withdrawn digest {'f' * 64}" in text(bench.request(Changes(put=(one,))))


def test_key_that_joins_is_shown_with_its_whole_fingerprint(
    bench: CeremonyBench,
) -> None:
    dora = new_key("root", "dora")
    shown = text(
        bench.request(Changes(keys=(RoleChange("root", add=(holder(dora),)),)))
    )
    assert dora.public.fingerprint in shown


def test_builder_that_joins_is_shown_with_the_fingerprint_on_its_paper(
    bench: CeremonyBench,
) -> None:
    bea = new_key("builder", "bea")
    document = {"keys": [{"key": bea.public.key, "name": "bea"}], "threshold": 1}
    one = NewTarget.of("builders/keys.json", json.dumps(document).encode())
    assert bea.public.fingerprint in text(bench.request(Changes(put=(one,))))


def test_key_of_a_gate_epoch_is_shown(bench: CeremonyBench) -> None:
    assert bench.gate_keys[0].public.raw.hex() in text(bench.first())


def test_accounts_of_a_reviewer_that_change_are_shown(bench: CeremonyBench) -> None:
    document = {"keys": [{"key": "00" * 32, "name": "rex", "accounts": ["ab" * 32]}]}
    one = NewTarget.of("reviewers/keys.json", json.dumps(document).encode())
    assert "ab" * 32 in text(bench.request(Changes(put=(one,))))


def test_complete_review_says_to_publish(bench: CeremonyBench) -> None:
    ceremony = bench.sign(bench.request(Changes(renew=("policy",))))
    assert "stoilo release publish" in text(ceremony)


@pytest.mark.parametrize("rehearsal", [False, True])
def test_rehearsal_is_said_in_capitals(tmp_path, rehearsal: bool) -> None:
    fresh = CeremonyBench(tmp_path / "release", rehearsal=rehearsal)
    assert ("REHEARSAL" in text(fresh.first())) is rehearsal
    assert review(fresh.first(), NOW).problems == ()


JUNK: list[Any] = [None, -1, 0, 2**40, "", "x", "\ud7ff", [], {}, ["*"], {"a": 1}, True]


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON document."""
    rows = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    found = [path] if path else []
    for key, value in rows:
        found += places(value, (*path, key))
    return found


def mutated(data: bytes, choice: int, junk: Any) -> bytes:
    document = json.loads(data)
    paths = places(document)
    *way, last = paths[choice % len(paths)]
    node = document
    for step in way:
        node = node[step]
    node[last] = junk
    return json.dumps(document).encode()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    which=st.integers(0, 5), choice=st.integers(0, 10**4), junk=st.sampled_from(JUNK)
)
def test_any_field_changed_ends_in_a_code_or_a_lost_signature(
    published_bench: CeremonyBench, which: int, choice: int, junk: Any
) -> None:
    ceremony = complete(published_bench)
    files = list(ceremony.proposal.metadata)
    old = files[which % len(files)]
    data = mutated(old.data, choice, junk)
    if json.loads(data) == json.loads(old.data):
        return
    files[which % len(files)] = RoleFile(old.role, old.version, data)
    forged = replace(
        ceremony, proposal=replace(ceremony.proposal, metadata=tuple(files))
    )
    try:
        found = review(forged, NOW)
        render_review(found)
    except StoiloError as error:
        assert error.code.startswith("STO-")
    else:
        same = forged.digest == ceremony.digest  # outside of what is signed
        assert same or not found.complete


SMALL = (
    *("project.json", "gate/epochs.json", "gate/1.json", "revocation/denied.json"),
    *("policy/accepted.json", "reviewers/keys.json", "executor/floors.json"),
    "builders/keys.json",
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    name=st.sampled_from(SMALL),
    choice=st.integers(0, 10**4),
    junk=st.sampled_from(JUNK),
)
def test_any_target_changed_is_described_and_judged(
    published_bench: CeremonyBench, name: str, choice: int, junk: Any
) -> None:
    honest = complete(published_bench).proposal.target(name) or b""
    try:
        one = NewTarget.of(name, mutated(honest, choice, junk))
        found = review(published_bench.request(Changes(put=(one,))), NOW)
        render_review(found)
    except StoiloError as error:
        assert error.code.startswith("STO-")


_COMPLETE: dict[int, Ceremony] = {}


def complete(bench: CeremonyBench) -> Ceremony:
    """Return one complete ceremony of `bench`, made once."""
    if id(bench) not in _COMPLETE:
        roles = ("root", "targets", "gate", "policy", "reviewers", "revocation")
        _COMPLETE[id(bench)] = bench.sign(bench.request(Changes(renew=roles)))
    return _COMPLETE[id(bench)]


def test_control_the_unchanged_ceremony_is_complete_and_published(
    bench: CeremonyBench,
) -> None:
    ceremony = bench.sign(bench.request(Changes(renew=("root", "targets"))))
    assert review(ceremony, NOW).complete
    publish(ceremony, bench.directory, NOW)


def test_role_that_needs_all_of_its_keys_is_warned_of(bench: CeremonyBench) -> None:
    change = RoleChange("root", threshold=3)
    found = review(bench.request(Changes(keys=(change,))), NOW)
    assert any("one lost stops it" in warning for warning in found.warnings)
    spare = RoleChange("root", add=(holder(new_key("root", "dora")),), threshold=3)
    found = review(bench.request(Changes(keys=(spare,))), NOW)
    assert found.warnings == ()


@pytest.mark.parametrize(("epochs", "closes"), [((1,), True), ((2,), False)])
def test_withdrawing_the_only_open_epoch_is_warned_of(
    bench: CeremonyBench, epochs: tuple[int, ...], closes: bool
) -> None:
    proposal = bench.request(Changes(renew=("revocation",))).proposal
    ceremony = bench.request(withdraw(proposal, RevocationFile(epochs=epochs)))
    warnings = review(ceremony, NOW).warnings
    assert any("no gate epoch would be open" in one for one in warnings) is closes
    bench.publish(ceremony)
    state = read_status(open_published(bench.directory), NOW)
    assert (state.state, state.epochs_until == 0) == (
        ("expired", True) if closes else ("soon", False)
    )
