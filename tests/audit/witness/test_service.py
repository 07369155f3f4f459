import dataclasses
import itertools
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import parse_checkpoint
from stoilo.audit.format.misbehaviour import check_misbehaviour
from stoilo.audit.format.note import parse_note, parse_vkey, verify_signature
from stoilo.audit.witness.protocol import (
    AddCheckpoint,
    Answer,
    hash_origin,
    parse_cosignatures,
    render_add_checkpoint,
)
from stoilo.audit.witness.service import WitnessService
from stoilo.core.errors import InternalError, StoiloError, TrustError
from tests.support.local_witness import GrowingLog, LocalWitness

MakeWitness = Callable[..., LocalWitness]


def ask(one: LocalWitness, log: GrowingLog, old: int, size: int) -> Answer:
    return one.service.add_checkpoint(render_add_checkpoint(log.request(old, size)))


def size_in(one: LocalWitness, log: GrowingLog) -> int:
    note = one.service.latest(hash_origin(log.key.origin))
    return int(note.split(b"\n")[1]) if note else 0


def test_growing_log_is_cosigned_again_and_again(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    sizes = [0, 0, 1, 2, 2, 300, 301]
    answers = [ask(one, log, old, new).status for old, new in itertools.pairwise(sizes)]
    assert answers == [200] * 6


def test_cosignature_verifies_and_carries_the_witness_time(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness(clock=lambda: 1_700_000_000)
    (item,) = parse_cosignatures(ask(one, log, 0, 8).body)
    verify_signature(log.body(8), item, one.key.verifier)
    assert item.time == 1_700_000_000


def test_conflict_tells_the_size_in_the_protocol_media_type(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    assert ask(one, log, 3, 8) == Answer(409, b"0\n", "text/x.tlog.size")
    ask(one, log, 0, 8)
    assert ask(one, log, 3, 9) == Answer(409, b"8\n", "text/x.tlog.size")


def test_refused_request_changes_nothing(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one, fork = make_witness(), GrowingLog(log.key, "other")
    ask(one, log, 0, 8)
    before = one.service.latest(hash_origin(log.key.origin))
    for refused in (
        ask(one, fork, 8, 8),
        ask(one, fork, 8, 12),
        ask(one, log, 8, 4),
        ask(one, log, 0, 12),
        one.service.add_checkpoint(b"garbage"),
    ):
        assert refused.status in {400, 409, 422}
    assert one.service.latest(hash_origin(log.key.origin)) == before


def test_rollback_is_not_cosigned_even_with_the_old_size_known(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    ask(one, log, 0, 8)
    assert ask(one, log, 4, 4).status == 409
    assert size_in(one, log) == 8


def test_monitor_gets_the_note_with_both_signatures(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    ask(one, log, 0, 8)
    note = parse_note(one.service.latest(hash_origin(log.key.origin)) or b"")
    by_log, by_witness = note.signatures
    verify_signature(note.text, by_log, parse_vkey(log.key.vkey))
    verify_signature(note.text, by_witness, one.key.verifier)


@pytest.mark.parametrize("name", ["0" * 64, "../x", "", "A" * 64])
def test_monitor_gets_nothing_of_unknown_logs(
    make_witness: MakeWitness, log: GrowingLog, name: str
) -> None:
    one = make_witness()
    ask(one, log, 0, 8)
    assert one.service.latest(name) is None


def test_memory_survives_the_witness(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    first = make_witness()
    ask(first, log, 0, 8)
    first.store.close()
    second = make_witness()
    assert ask(second, log, 0, 9).body == b"8\n"


def test_of_two_forks_at_the_same_time_one_is_cosigned(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    """The race of the specification: check and store are one step."""
    logs = [log, *(GrowingLog(log.key, f"{n}") for n in range(7))]
    bodies = [render_add_checkpoint(each.request(0, 9)) for each in logs]
    one = make_witness()
    start = threading.Barrier(8)

    def race(body: bytes) -> int:
        start.wait()
        return one.service.add_checkpoint(body).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(race, bodies)) == [200] + [409] * 7


def test_two_services_on_one_memory_never_roll_back(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    """Two processes on one directory would be this: the database decides."""
    pair = [make_witness(), make_witness()]
    ask(pair[0], log, 0, 1)
    cosigned: list[int] = []

    def climb(one: LocalWitness) -> None:
        for size in range(2, 40):
            for old in range(size, 0, -1):
                if ask(one, log, old, size).status == 200:
                    cosigned.append(size)
                    break

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(climb, pair))
    assert size_in(pair[0], log) == max(cosigned) == 39


def test_clock_that_goes_back_a_little_does_not_turn_time_back(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    times = iter([1_700_000_100, 1_700_000_000])
    one = make_witness(clock=lambda: next(times))
    first = parse_cosignatures(ask(one, log, 0, 1).body)[0]
    second = parse_cosignatures(ask(one, log, 1, 2).body)[0]
    assert first.time == second.time == 1_700_000_100


def test_clock_that_goes_back_far_silences_the_witness(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    times = iter([1_900_000_000, 1_700_000_000])
    one = make_witness(clock=lambda: next(times))
    ask(one, log, 0, 1)
    with pytest.raises(InternalError, match="STO-L108"):
        ask(one, log, 1, 2)
    assert size_in(one, log) == 1


def test_nothing_is_cosigned_when_it_cannot_be_remembered(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    ask(one, log, 0, 1)
    one.store._connection.execute("PRAGMA query_only = ON")  # as a disk that fails
    with pytest.raises(InternalError, match="STO-U006"):
        ask(one, log, 1, 2)
    one.store._connection.execute("PRAGMA query_only = OFF")
    assert ask(one, log, 1, 2).status == 200  # control


def test_two_signed_trees_of_one_size_are_kept_as_evidence(
    make_witness: MakeWitness, log: GrowingLog, tmp_path: Path
) -> None:
    one, fork = make_witness(), GrowingLog(log.key, "other")
    ask(one, log, 0, 8)
    ask(one, log, 3, 8)  # control: the same tree is no contradiction
    assert not (tmp_path / "w1" / "evidence").exists()
    ask(one, fork, 8, 8)
    ask(one, fork, 3, 8)  # again: it is kept once
    (proof,) = (tmp_path / "w1" / "evidence").iterdir()
    found = check_misbehaviour(proof.read_bytes(), log.key.policy)
    assert found.first == parse_checkpoint(log.body(8))
    assert found.second == parse_checkpoint(fork.body(8))


def test_evidence_is_bounded(
    make_witness: MakeWitness, log: GrowingLog, tmp_path: Path
) -> None:
    one = make_witness()
    ask(one, log, 0, 2)
    for number in range(80):
        ask(one, GrowingLog(log.key, f"{number}"), 2, 2)
    assert len(list((tmp_path / "w1" / "evidence").iterdir())) == 64


def test_evidence_that_cannot_be_kept_changes_no_answer(
    make_witness: MakeWitness, log: GrowingLog, tmp_path: Path
) -> None:
    one = make_witness()
    ask(one, log, 0, 2)
    (tmp_path / "w1" / "evidence").write_bytes(b"")  # in the directory's place
    assert ask(one, GrowingLog(log.key, "other"), 2, 2).status == 422


def test_several_keys_of_one_log_are_all_trusted(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    other = type(log.key)(log.key.origin, seed=b"\2" * 32)
    both = [parse_vkey(log.key.vkey), parse_vkey(other.vkey)]
    service = WitnessService(one.key, both, one.store, clock=lambda: 1)
    for old, key in ((0, log.key), (3, other)):
        request = dataclasses.replace(
            log.request(old, old + 3), note=key.sign(log.body(old + 3))
        )
        body = render_add_checkpoint(request)
        assert service.add_checkpoint(body).status == 200


def test_any_prefix_of_a_request_ends_in_an_answer(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    ask(one, log, 0, 3)
    body = render_add_checkpoint(log.request(3, 9))
    for length in range(0, len(body), 7):
        try:
            answer = one.service.add_checkpoint(body[:length])
        except StoiloError:
            pytest.fail("a request never raises")
        assert answer.status in {400, 403}


def test_unknown_log_costs_no_memory(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()
    foreign = GrowingLog(type(log.key)("elsewhere.test/t"))
    answer = one.service.add_checkpoint(
        render_add_checkpoint(AddCheckpoint(0, (), foreign.note(4)))
    )
    assert answer.status == 404
    assert one.store.find(hash_origin("elsewhere.test/t")) is None


@pytest.mark.parametrize(
    "change",
    [
        "origin_hash = '00'",
        "note = CAST(replace(CAST(note AS TEXT), 'A', 'B') AS BLOB)",
        "note = x'00'",
    ],
)
def test_memory_that_was_changed_silences_the_witness(
    make_witness: MakeWitness, log: GrowingLog, change: str
) -> None:
    one = make_witness()
    ask(one, log, 0, 8)
    make_witness().store.close()  # control: unchanged, it opens
    one.store._connection.execute(f"UPDATE cosigned SET {change}")  # noqa: S608
    with pytest.raises(TrustError, match="STO-L106"):
        make_witness()
    one.store.close()


def test_disk_that_failed_once_is_not_believed_again(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    one = make_witness()

    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with pytest.raises(InternalError, match="STO-U006"), one.store.change():
        raise error
    with pytest.raises(InternalError, match="STO-U006"):
        ask(one, log, 0, 5)


def test_repeated_checkpoint_costs_no_write_within_its_second(
    make_witness: MakeWitness, log: GrowingLog
) -> None:
    times = iter([7, 7, 8, 8])
    one = make_witness(clock=lambda: next(times))
    answers = [ask(one, log, 0, 5), ask(one, log, 5, 5)]
    assert answers[0] == answers[1]
    writes = one.store._connection.total_changes
    one.store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(InternalError, match="STO-U006"):
        ask(one, log, 5, 5)  # control: a second later it is written again
    assert one.store._connection.total_changes == writes
