"""Bad input to a running deployment, through its sockets (issue: bad input, design I5).

Every attack ends in an error with a code where the protocol has room for one, leaves no
row and no file behind, no traceback in any log, and an honest task still comes back.
"""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.codec.skeleton import encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS
from stoilo.server.admission import tokens
from tests.support.wire import WireAnswer

METHODS = ("CreateTask", "PollTask", "ListTasks", "CancelTask", "RejectResult")
REFUSED = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "ALREADY_EXISTS",
}


pytestmark = pytest.mark.usefixtures("harmless")


def refused(answer: WireAnswer, code: str, status: str = "INVALID_ARGUMENT") -> None:
    assert (answer.status, answer.code) == (status, code), answer
    assert "/" not in answer.text.replace("and/or", "")


# --------------------------------------------------------------------- messages


MALFORMED = {
    "noise": b"\xff" * 40,
    "cut in a field": pb.CreateTaskRequest(entry="x" * 90).SerializeToString()[:-9],
    "text that is not UTF-8": b"\x0a\x02\xff\xfe",
    "length beyond the message": b"\x0a\xff\xff\xff\x7f",
    "endless varint": b"\x80" * 64,
    "group that never ends": b"\x0b" * 200,
    "field number 0": b"\x00\x01",
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_message_is_refused_with_a_code(target, method, name):
    refused(target.client.call(method, MALFORMED[name]), "STO-R010")


def test_malformed_stream_message_is_refused_with_a_code(target):
    refused(target.client.send_stream("UploadBlob", [b"\xff" * 9]), "STO-R010")
    begun = pb.UploadBlobRequest(digest="0" * 64, size=9, data=b"abc")
    bodies = [begun.SerializeToString(), b"\xff" * 9]
    refused(target.client.send_stream("UploadBlob", bodies), "STO-R010")


def test_malformed_download_request_is_refused_with_a_code(target):
    refused(target.client.read_stream("DownloadBlob", b"\xff" * 9), "STO-R010")


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_bytes_as_a_message_end_in_a_code(target, data):
    method = data.draw(st.sampled_from(METHODS))
    answer = target.client.call(method, data.draw(st.binary(max_size=300)))
    if method == "ListTasks" and answer.status == "OK":  # nothing is a sound request
        return
    assert answer.status in REFUSED, answer
    assert answer.code.startswith("STO-"), answer


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 400))
def test_damaged_sound_request_ends_in_a_code_or_in_a_task(target, place, byte, cut):
    sound = pb.CreateTaskRequest(
        idempotency_key="damaged",
        task_module=b"def another(kwargs):\n    return 1 +\n",
        entry="task",
        arguments=encode({"x": [1, 2.0, "three", {4}]}),
    ).SerializeToString()
    hurt = bytearray(sound)
    hurt[place % len(hurt)] = byte
    answer = target.client.call(
        "CreateTask", bytes(hurt[: len(hurt) - cut % len(hurt)])
    )
    assert answer.status in REFUSED, answer
    assert answer.code.startswith("STO-"), answer


def test_oversized_message_is_refused(target):
    body = pb.CreateTaskRequest(task_module=b"#" * (64 * 1024 * 1024))
    answer = target.client.call("CreateTask", body.SerializeToString())
    assert answer.status == "RESOURCE_EXHAUSTED"


def test_unknown_method_is_refused(target):
    assert target.client.call("DropTables", b"").status == "UNIMPLEMENTED"


# ----------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer " + "x" * 4000)],
        [("authorization", "Basic c3RvOnN0bw==")],
        [("authorization", "Bearer sto_' or 1=1 --")],
        [("authorization-bin", b"\xff\xfe")],
    ],
    ids=lambda metadata: str(metadata)[:40],
)
@pytest.mark.parametrize("method", METHODS)
def test_without_a_good_token_nothing_is_told(target, metadata, method):
    answer = target.client.call(method, b"", metadata=metadata)
    refused(answer, "STO-R001", "UNAUTHENTICATED")


@pytest.mark.parametrize("role", ["volunteer", "auditor", "reviewer"])
def test_token_of_another_role_may_not_submit(target, role, token_maker):
    token = token_maker(f"a {role}", tokens.Role(role))
    answer = target.client.call("CreateTask", b"", token=token)
    refused(answer, "STO-R002", "PERMISSION_DENIED")


def test_expired_token_is_refused_like_an_unknown_one(target, token_maker):
    token = token_maker("late", tokens.Role.RESEARCHER, lifetime_s=1)
    answer = target.client.call("PollTask", b"", token=token)
    refused(answer, "STO-R001", "UNAUTHENTICATED")


# ------------------------------------------------------------- others' property


def test_task_of_another_owner_does_not_exist(target, finished):
    theirs = pb.PollTaskRequest(task_id=finished).SerializeToString()
    nobodys = pb.PollTaskRequest(task_id="0" * 32).SerializeToString()
    for method in ("PollTask", "CancelTask", "RejectResult"):
        answers = {target.stranger.call(method, one) for one in (theirs, nobodys)}
        assert len(answers) == 1
        refused(answers.pop(), "STO-R003", "NOT_FOUND")
    assert target.client.poll(finished).state == "succeeded"


def test_blob_of_another_owner_does_not_exist(target, blob):
    answers = {target.stranger.download(one) for one in (blob, "0" * 64)}
    assert len(answers) == 1
    refused(answers.pop(), "STO-R003", "NOT_FOUND")
    assert target.client.download(blob).status == "OK"


def test_blob_of_another_owner_cannot_be_named(target, blob):
    theirs = target.stranger.create(blobs=[blob])
    nobodys = target.stranger.create(blobs=["0" * 64])
    assert theirs.text.replace(blob[:12], "") == nobodys.text.replace("0" * 12, "")
    refused(theirs, "STO-R012", "NOT_FOUND")


def test_idempotency_key_of_another_owner_reveals_nothing(
    target, finished, finished_key
):
    assert finished
    mine = target.client.create(idempotency_key=finished_key, entry="other")
    refused(mine, "STO-R011", "ALREADY_EXISTS")
    theirs = target.stranger.create(idempotency_key=finished_key, entry="missing")
    assert (theirs.status, theirs.code) == ("FAILED_PRECONDITION", "STO-R020")


@pytest.mark.parametrize(
    "task_id", ["", "../../etc/passwd", "'; drop table task; --", "\0" * 32, "é" * 99]
)
def test_hostile_task_id_is_an_unknown_task(target, task_id):
    body = pb.PollTaskRequest(task_id=task_id).SerializeToString()
    refused(target.client.call("PollTask", body), "STO-R003", "NOT_FOUND")


# ------------------------------------------------------------------- submissions


@pytest.mark.parametrize(
    "key", ["", " ", "a" * 65, "../up", "k\n", "k\0", "ключ", "'; --", "a/b"]
)
def test_hostile_idempotency_key_is_refused(target, key):
    refused(target.client.create(idempotency_key=key), "STO-R010")


SOURCES = {
    "not UTF-8": b"\xff\xfe",
    "NUL": b"def task(k):\n    return '\0'\n",
    "deep brackets": b"def task(k):\n    return " + b"(" * 5000 + b")" * 5000,
    "deep unary": b"def task(k):\n    return " + b"-" * 50_000 + b"1",
    "deep attribute chain": b"def task(k):\n    return k" + b".a" * 40_000,
    "huge integer": b"def task(k):\n    return " + b"9" * 9000,
    "bad syntax": b"def task(k:\n",
    "import os": b"import os\ndef task(k):\n    return os.getpid()\n",
    "dunder walk": b"def task(k):\n    return ().__class__.__bases__\n",
    "bidi text": "def task(k):\n    return 'a\u202e'\n".encode(),
    "coding cookie": b"# coding: utf-7\ndef task(k):\n    return 1\n",
    "many lines": b"\n" * 200_000 + b"import os\n",
    "no such entry": b"def other(k):\n    return 1\n",
}


@pytest.mark.parametrize("name", SOURCES)
def test_hostile_source_is_refused_by_the_gate(target, name):
    answer = target.client.create(task_module=SOURCES[name])
    refused(answer, "STO-R020", "FAILED_PRECONDITION")


def test_source_beyond_the_bound_is_refused(target):
    source = b"#" * (BOUNDS.source_bytes + 1)
    refused(target.client.create(task_module=source), "STO-R010")
    refused(target.client.create(validator_module=source), "STO-R010")


DATA = {
    "empty": b"",
    "noise": b"\xff" * 64,
    "cut": encode([1, 2, 3])[:-1],
    "more behind it": encode(1) + b"\0",
    "a pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    "huge count": encode([])[:-4] + struct.pack("<I", 0xFFFF_FFFF),
}


@pytest.mark.parametrize("name", DATA)
def test_hostile_arguments_are_refused(target, name):
    answer = target.client.create(arguments=DATA[name])
    assert answer.status == "INVALID_ARGUMENT"
    assert answer.code.startswith("STO-D0")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tail=st.binary(max_size=200), keep=st.integers(0, 40))
def test_any_bytes_as_arguments_are_a_value_or_a_code(target, tail, keep):
    head = encode({"x": [1, {"y": (2.5, b"z")}, {3}]})[:keep]
    answer = target.client.create(arguments=head + tail, entry="missing")
    allowed = {"INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    assert answer.status in allowed, answer
    assert answer.code.startswith("STO-"), answer


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"entry": "task()"}, "STO-R010"),
        ({"entry": "x" * 129}, "STO-R010"),
        ({"entry": ""}, "STO-R010"),
        ({"label": "l" * 129}, "STO-R010"),
        ({"map_items": 10_001}, "STO-R010"),
        ({"map_items": 3}, "STO-R010"),
        ({"blobs": ["../../server.sqlite"]}, "STO-D002"),
        ({"blobs": ["0" * 64] * 65}, "STO-R010"),
        ({"compare_entry": "same"}, "STO-R010"),
        ({"limits": pb.RunLimits(memory_bytes=2**64 - 1)}, "STO-R010"),
        ({"limits": pb.RunLimits(cpu_s=2**32 - 1)}, "STO-R010"),
        ({"redundancy": pb.RedundancyOptions(min_quorum=2**32 - 1)}, "STO-C042"),
        ({"redundancy": pb.RedundancyOptions()}, "STO-C042"),
    ],
    ids=str,
)
def test_hostile_field_is_refused(target, fields, code):
    refused(target.client.create(**fields), code)


@pytest.mark.parametrize("field", ["level", "flavor"])
def test_unknown_level_or_flavor_is_refused(target, field):
    answer = target.client.create(**{field: "../gpu"})
    assert answer.status in REFUSED
    assert answer.code.startswith("STO-")


# ------------------------------------------------------------------------- blobs


def test_blob_with_another_digest_leaves_nothing(target):
    data = encode("some value")
    refused(target.client.upload("0" * 64, len(data), data), "STO-R010")


def test_half_a_blob_leaves_nothing(target):
    data = encode("some value" * 100)
    digest = hashlib.sha256(data).hexdigest()
    refused(target.client.upload(digest, len(data), data[:50]), "STO-R010")
    refused(target.client.upload(digest, 50, data[:40], data[40:]), "STO-R010")


def test_upload_that_hangs_up_leaves_nothing(target):
    data = encode("some value" * 100_000)
    digest = hashlib.sha256(data).hexdigest()

    def hang_up():
        first = pb.UploadBlobRequest(digest=digest, size=len(data), data=data[:9999])
        yield first.SerializeToString()
        raise ConnectionError

    answer = target.client.send_stream("UploadBlob", hang_up())
    assert answer.status != "OK"
    assert target.client.download(digest).code == "STO-R003"


@pytest.mark.parametrize(
    ("digest", "size", "code"),
    [
        ("", 1, "STO-D002"),
        ("../" * 21 + "x", 1, "STO-D002"),
        ("A" * 64, 1, "STO-D002"),
        ("0" * 64, BOUNDS.blob_bytes + 1, "STO-R010"),
    ],
)
def test_hostile_blob_name_or_size_is_refused(target, digest, size, code):
    refused(target.client.upload(digest, size, b"x"), code)


def test_blob_larger_than_any_quota_is_refused(target):
    answer = target.client.upload("0" * 64, 2**64 - 1, b"x")
    assert answer.status in {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
    assert answer.code in {"STO-R010", "STO-R006"}


@pytest.mark.parametrize("data", [b"", b"no value", encode([1])[:-1]])
def test_blob_that_is_no_value_leaves_nothing(target, data):
    digest = hashlib.sha256(data).hexdigest()
    answer = target.client.upload(digest, len(data), data)
    assert (answer.status, answer.code[:6]) == ("INVALID_ARGUMENT", "STO-D0")


def test_empty_stream_is_refused(target):
    refused(target.client.send_stream("UploadBlob", []), "STO-R010")
