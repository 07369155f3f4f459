import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stoilo.audit.format.note import NoteSignature
from stoilo.audit.format.policy import LogPolicy, open_checkpoint, parse_policy
from stoilo.audit.witness.client import Cosigner, CosignSettings
from stoilo.audit.witness.protocol import Answer, render_cosignatures
from stoilo.core.errors import UnreachableError
from tests.support.faulty_log import LogKey
from tests.support.local_witness import GrowingLog, LocalWitness

MakeWitness = Callable[..., LocalWitness]
PATIENT = CosignSettings(timeout_s=30, linger_s=0.05)


class Bench:
    """Witnesses under one policy, and their cosigner."""

    def __init__(self, key: LogKey, make: MakeWitness) -> None:
        self.key, self._make = key, make
        self.open: list[Cosigner] = []

    def set_up(
        self, names: str, quorum: str, **options: object
    ) -> tuple[Cosigner, LogPolicy, list[LocalWitness]]:
        made = [self._make(name) for name in names.split()]
        lines = [f"log {self.key.vkey}"]
        lines += [
            f"witness {name} {one.key.vkey} http://{name}/"
            for name, one in zip(names.split(), made, strict=True)
        ]
        policy = parse_policy("\n".join([*lines, quorum, ""]).encode())
        ways = {f"http://{n}/": w for n, w in zip(names.split(), made, strict=True)}
        options.setdefault("settings", PATIENT)
        cosigner = Cosigner(policy, wire=ways.__getitem__, **options)  # type: ignore[arg-type]
        self.open.append(cosigner)
        return cosigner, policy, made


@pytest.fixture
def bench(key: LogKey, make_witness: MakeWitness) -> Iterator[Bench]:
    one = Bench(key, make_witness)
    yield one
    for cosigner in one.open:
        cosigner.close()


def test_every_witness_cosigns_a_growing_log(bench: Bench, log: GrowingLog) -> None:
    cosigner, policy, made = bench.set_up(
        "w1 w2 w3", "group all all w1 w2 w3\nquorum all"
    )
    for size in (1, 2, 2, 300):
        note = cosigner(log.note(size), log.prove(size))
        signed = open_checkpoint(note, policy)
        assert signed.witnesses == {"w1", "w2", "w3"}
        assert signed.checkpoint.size == size
    assert [one.asked for one in made] == [4] * 3


def test_dead_witness_does_not_matter_within_the_quorum(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, policy, made = bench.set_up("w1 w2", "group any any w1 w2\nquorum any")
    made[0].dead = True
    signed = open_checkpoint(cosigner(log.note(3), log.prove(3)), policy)
    assert signed.witnesses == {"w2"}


def test_dead_witness_of_the_quorum_stops_publication_and_is_named(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, policy, made = bench.set_up("w1 w2", "group both all w1 w2\nquorum both")
    made[0].dead = True
    with pytest.raises(UnreachableError, match=r"STO-L058") as caught:
        cosigner(log.note(3), log.prove(3))
    assert "w1" in caught.value.message
    assert "w2:" not in caught.value.message
    made[0].dead = False
    assert open_checkpoint(cosigner(log.note(3), log.prove(3)), policy)


def test_hanging_witness_costs_the_others_nothing(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, policy, made = bench.set_up(
        "w1 w2",
        "group any any w1 w2\nquorum any",
        settings=CosignSettings(timeout_s=60, linger_s=0.01),
    )
    made[0].hold.clear()
    for size in range(1, 20):
        note = cosigner(log.note(size), log.prove(size))
        assert open_checkpoint(note, policy).witnesses == {"w2"}
    assert made[0].asked == 1
    made[0].hold.set()


def test_witness_that_hung_goes_on_with_the_newest_checkpoint(
    bench: Bench, log: GrowingLog, wait_until: Callable[..., object]
) -> None:
    cosigner, policy, made = bench.set_up("w1 w2", "group any any w1 w2\nquorum any")
    made[0].hold.clear()
    for size in (1, 2, 3, 4):
        cosigner(log.note(size), log.prove(size))
    made[0].hold.set()
    wait_until(
        lambda: (
            "w1"
            in open_checkpoint(cosigner(log.note(5), log.prove(5)), policy).witnesses
        )
    )


def test_size_that_a_witness_tells_is_proved_from(
    bench: Bench, log: GrowingLog
) -> None:
    """A new process of the log knows no sizes: one more request finds them."""
    first, _, _ = bench.set_up("w1", "quorum w1")
    first(log.note(7), log.prove(7))
    again, policy, made = bench.set_up("w1", "quorum w1")
    assert open_checkpoint(again(log.note(20), log.prove(20)), policy)
    assert made[0].asked == 2


def test_crash_between_cosignature_and_publication_is_no_conflict(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, policy, made = bench.set_up("w1 w2", "group both all w1 w2\nquorum both")
    made[1].dead = True
    with pytest.raises(UnreachableError):
        cosigner(log.note(5), log.prove(5))  # w1 has stored 5
    made[1].dead = False
    signed = open_checkpoint(cosigner(log.note(9), log.prove(9)), policy)
    assert signed.witnesses == {"w1", "w2"}


def test_fork_gets_no_cosignature_and_the_witness_is_quoted(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, _, _ = bench.set_up("w1", "quorum w1")
    cosigner(log.note(5), log.prove(5))
    fork = GrowingLog(log.key, "other")
    with pytest.raises(UnreachableError, match=r"STO-L103"):
        cosigner(fork.note(9), fork.prove(9))


def test_log_that_lost_leaves_is_told_so(bench: Bench, log: GrowingLog) -> None:
    cosigner, _, _ = bench.set_up("w1", "quorum w1")
    cosigner(log.note(9), log.prove(9))
    with pytest.raises(UnreachableError, match=r"STO-L103"):
        cosigner(log.note(5), log.prove(5))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(404, b"no such log\n"), "STO-L058"),
        (Answer(403, b""), "STO-L058"),
        (Answer(500, b"STO-U006\n"), "STO-L058"),
        (Answer(200, b""), "STO-L010"),
        (Answer(200, b"<html>"), "STO-L010"),
        (Answer(409, b"many\n"), "STO-L010"),
        (Answer(409, b"9223372036854775807\n"), "STO-L103"),
        (Answer(409, b"0\n"), "STO-L058"),
        (Answer(302, b""), "STO-L058"),
    ],
)
def test_lying_witness_is_named_and_never_counted(
    bench: Bench, log: GrowingLog, answer: Answer, code: str
) -> None:
    cosigner, policy, (one,) = bench.set_up("w1", "quorum w1")
    one.forced = answer
    with pytest.raises(UnreachableError, match=code):
        cosigner(log.note(3), log.prove(3))
    one.forced = None
    assert open_checkpoint(cosigner(log.note(4), log.prove(4)), policy)


def test_cosignature_of_another_checkpoint_is_refused(
    bench: Bench, log: GrowingLog
) -> None:
    cosigner, _, (one,) = bench.set_up("w1", "quorum w1")
    item = one.key.cosign(log.body(99), int(time.time()))
    one.forced = Answer(200, _lines(item))
    with pytest.raises(UnreachableError, match=r"STO-L012"):
        cosigner(log.note(3), log.prove(3))


def test_cosignature_by_another_key_is_refused(
    bench: Bench, log: GrowingLog, make_witness: MakeWitness
) -> None:
    cosigner, _, (one,) = bench.set_up("w1", "quorum w1")
    stranger = make_witness("stranger").key.cosign(log.body(3), int(time.time()))
    one.forced = Answer(200, _lines(stranger))
    with pytest.raises(UnreachableError, match=r"STO-L010"):
        cosigner(log.note(3), log.prove(3))


def test_witness_with_a_wrong_clock_is_not_counted(
    bench: Bench, log: GrowingLog
) -> None:
    off = time.time() + 2 * 3600
    cosigner, _, _ = bench.set_up("w1", "quorum w1", clock=lambda: off)
    with pytest.raises(UnreachableError, match=r"STO-L108"):
        cosigner(log.note(3), log.prove(3))


def test_without_quorum_witnesses_are_asked_all_the_same(
    bench: Bench, log: GrowingLog
) -> None:
    settings = CosignSettings(timeout_s=30, linger_s=30)
    cosigner, policy, _ = bench.set_up("w1", "quorum none", settings=settings)
    signed = open_checkpoint(cosigner(log.note(3), log.prove(3)), policy)
    assert signed.witnesses == {"w1"}


def test_closed_cosigner_leaves_no_thread(bench: Bench, log: GrowingLog) -> None:
    cosigner, _, _ = bench.set_up("w1 w2", "quorum w1")
    cosigner(log.note(1), log.prove(1))
    mine = [one for one in threading.enumerate() if one.name.startswith("witness-")]
    cosigner.close()
    for one in mine:
        one.join(60)
    assert not [one for one in mine if one.is_alive()]


def _lines(item: NoteSignature) -> bytes:
    return render_cosignatures([item])
