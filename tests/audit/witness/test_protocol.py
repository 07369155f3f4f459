import base64
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint
from stoilo.audit.format.note import (
    MAX_NOTE_BYTES,
    Note,
    parse_note,
    parse_vkey,
    render_note,
)
from stoilo.audit.witness.protocol import (
    AddCheckpoint,
    Status,
    hash_origin,
    judge_checkpoint,
    parse_add_checkpoint,
    parse_cosignatures,
    parse_told_size,
    render_add_checkpoint,
    render_cosignatures,
)
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.local_witness import GrowingLog

KEY = LogKey("log.test/t")
LOG = GrowingLog(KEY)
FORK = GrowingLog(KEY, "another history")
KEYS = [parse_vkey(KEY.vkey)]

# The example of c2sp.org/tlog-witness, as printed there.
EXAMPLE = b"""old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\xe2\x80\x94 example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
"""


def stored(log: GrowingLog, size: int) -> Checkpoint:
    return parse_checkpoint(log.body(size))


def judge(stored_size: int, request: AddCheckpoint) -> Status:
    last = stored(LOG, stored_size) if stored_size else None
    return judge_checkpoint(last, request, KEYS).status


def test_example_of_the_specification_is_read_and_written_as_printed() -> None:
    request = parse_add_checkpoint(EXAMPLE)
    assert (request.old, len(request.proof)) == (20852014, 4)
    assert render_add_checkpoint(request) == EXAMPLE


@given(st.integers(0, 40), st.integers(0, 40))
def test_request_is_read_back_as_it_was_written(old: int, more: int) -> None:
    request = LOG.request(old, old + more)
    assert parse_add_checkpoint(render_add_checkpoint(request)) == request


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_request_or_our_error(data: bytes) -> None:
    try:
        parse_add_checkpoint(data)
    except TrustError as error:
        assert error.code == "STO-L010"


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_damaged_request_ends_in_an_answer(place: int, noise: bytes) -> None:
    body = bytearray(render_add_checkpoint(LOG.request(3, 9)))
    body[place : place + len(noise)] = noise
    try:
        request = parse_add_checkpoint(bytes(body))
    except TrustError:
        return
    answer = judge_checkpoint(stored(LOG, 3), request, KEYS)
    honest = parse_add_checkpoint(render_add_checkpoint(LOG.request(3, 9)))
    assert answer.status is not Status.COSIGNED or (
        answer.checkpoint == stored(LOG, 9) and request.old == honest.old
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"old 1\n",
        b"old 01\n\n",
        b"old -1\n\n",
        b"old 9223372036854775808\n\n",
        b"size 1\n\nx",
        b"old 1\nAAAA\n\nx",
        b"old 1\n" + b"not base64\n" + b"\nx",
        b"old 1\n" + (base64.b64encode(bytes(32)) + b"\n") * 64 + b"\nx",
        b"old 1\n\n" + b"x" * (MAX_NOTE_BYTES + 1),
        "old 1\u00e9\n\nx".encode(),
    ],
)
def test_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_add_checkpoint(body)


@pytest.mark.parametrize(
    ("stored_size", "old", "size", "status"),
    [
        (0, 0, 8, Status.COSIGNED),
        (0, 0, 0, Status.COSIGNED),
        (5, 5, 8, Status.COSIGNED),
        (8, 8, 8, Status.COSIGNED),
        (5, 9, 8, Status.MALFORMED),  # old > size comes before the conflict
        (5, 0, 8, Status.OTHER_SIZE),
        (5, 4, 8, Status.OTHER_SIZE),
        (5, 6, 8, Status.OTHER_SIZE),
        (5, 4, 4, Status.OTHER_SIZE),  # an older checkpoint again
        (0, 3, 8, Status.OTHER_SIZE),
        (5, 0, 0, Status.OTHER_SIZE),
    ],
)
def test_sizes_decide_as_the_protocol_says(
    stored_size: int, old: int, size: int, status: Status
) -> None:
    assert judge(stored_size, LOG.request(old, size)) is status


def test_same_size_with_another_root_is_a_contradiction() -> None:
    answer = judge_checkpoint(stored(LOG, 8), FORK.request(8, 8), KEYS)
    assert (answer.status, answer.contradiction) == (Status.INCONSISTENT, True)


def test_contradiction_is_seen_also_when_the_old_size_is_wrong() -> None:
    answer = judge_checkpoint(stored(LOG, 8), FORK.request(3, 8), KEYS)
    assert (answer.status, answer.contradiction) == (Status.OTHER_SIZE, True)


def test_fork_that_has_grown_is_refused() -> None:
    assert judge(5, FORK.request(5, 9)) is Status.INCONSISTENT


@pytest.mark.parametrize(
    "spoil",
    [
        lambda proof: proof[:0],
        lambda proof: proof[:-1],
        lambda proof: (*proof, bytes(32)),
        lambda proof: (bytes(32), *proof[1:]),
        lambda proof: proof[::-1],
    ],
)
def test_garbage_proof_is_refused(spoil: object) -> None:
    honest = LOG.request(5, 9)
    forged = dataclasses.replace(honest, proof=spoil(honest.proof))  # type: ignore[operator]
    assert judge(5, forged) is Status.INCONSISTENT
    assert judge(5, honest) is Status.COSIGNED  # control


def test_first_checkpoint_with_a_proof_is_refused() -> None:
    forged = dataclasses.replace(LOG.request(0, 9), proof=(bytes(32),))
    assert judge(0, forged) is Status.INCONSISTENT


def test_same_checkpoint_with_a_proof_is_refused() -> None:
    forged = dataclasses.replace(LOG.request(8, 8), proof=(bytes(32),))
    assert judge(8, forged) is Status.INCONSISTENT


def signed(body: bytes) -> AddCheckpoint:
    return AddCheckpoint(0, (), KEY.sign(body))


def test_empty_tree_with_a_root_is_refused() -> None:
    root = base64.b64encode(bytes(32))
    assert judge(0, signed(b"log.test/t\n0\n" + root + b"\n")) is Status.INCONSISTENT


@pytest.mark.parametrize(
    "body",
    [
        LOG.body(8) + b"an extension\n",
        b"log.test/t\n08\n" + LOG.body(8).split(b"\n", 2)[2],
        b"log.test/t\n8\n",
        b"log.test/t\n0\nnot base64\n",
        b"log.test/t\n0\n\xff\n",
    ],
)
def test_malformed_checkpoint_is_refused_though_signed(body: bytes) -> None:
    assert judge(0, signed(body)) is Status.MALFORMED


def test_log_that_is_not_watched_is_unknown() -> None:
    other = GrowingLog(LogKey("elsewhere.test/t"))
    assert judge(0, other.request(0, 8)) is Status.UNKNOWN_LOG


def test_key_of_another_log_signs_nothing_here() -> None:
    thief = LogKey("log.test/t", seed=b"\1" * 32)
    assert judge(0, GrowingLog(thief).request(0, 8)) is Status.UNTRUSTED


def test_wrong_signature_by_a_known_key_spoils_a_note_with_a_good_one() -> None:
    honest = parse_note(LOG.note(8))
    item = honest.signatures[0]
    wrong = dataclasses.replace(item, signature=bytes(64))
    note = render_note(Note(honest.text, (item, wrong)))
    assert judge(0, AddCheckpoint(0, (), note)) is Status.UNTRUSTED


def test_foreign_signatures_are_passed_over_and_not_kept() -> None:
    honest = parse_note(LOG.note(8))
    foreign = dataclasses.replace(honest.signatures[0], name="somebody.test")
    note = render_note(Note(honest.text, (foreign, *honest.signatures)))
    answer = judge_checkpoint(None, AddCheckpoint(0, (), note), KEYS)
    assert answer.status is Status.COSIGNED
    assert answer.note == honest


def test_cosignatures_are_read_back_as_written() -> None:
    lines = parse_note(LOG.note(8)).signatures
    assert parse_cosignatures(render_cosignatures(lines)) == lines


@given(st.binary(max_size=200))
def test_any_answer_ends_in_values_or_our_error(data: bytes) -> None:
    for parse in (parse_cosignatures, parse_told_size):
        try:
            parse(data)
        except TrustError as error:
            assert error.code == "STO-L010"


def test_answer_cannot_smuggle_in_another_text() -> None:
    lines = render_cosignatures(parse_note(LOG.note(8)).signatures)
    with pytest.raises(TrustError, match="STO-L010"):
        parse_cosignatures(b"text\n\n" + lines)


@pytest.mark.parametrize(("text", "size"), [(b"0\n", 0), (b"12\n", 12), (b"7", 7)])
def test_told_size_is_read(text: bytes, size: int) -> None:
    assert parse_told_size(text) == size


def test_origin_is_hashed_as_monitors_do() -> None:
    expected = "33967cb5951a402317bd6fba1ad1b69a22baf18150f022e4a1e965424625523c"
    assert hash_origin("log.test/t") == expected
