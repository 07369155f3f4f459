"""What a run here is to what volunteers agreed on, and what keeps one from being made."""

from __future__ import annotations

import sys

import msgspec
import pytest

from stoilo.audit.read.case import Case, CheckedCase, RecordedItem
from stoilo.cli.audit.again import Verdict, _comparing, compare_item, find_level
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import PolicyRefusal
from stoilo.core.statement import Statement
from stoilo.core.types import RunOutcome, RunStatus
from stoilo.flavors.manifest import shipped_flavors
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from tests.support.gate import GateBench

ONE, NEAR = encode(1.0), encode(1.0 + 1e-12)
CLOSE = b"def close(left, right):\n    return abs(left - right) < 1e-9\n"
RAISES = b"def close(left, right):\n    raise ValueError\n"
RAN = RunOutcome(status=RunStatus.OK, value=ONE)
FAILED = RunOutcome(status=RunStatus.USER_ERROR, error="KeyError: 1")
KILLED = RunOutcome(status=RunStatus.KILLED, error="too long", code="STO-S011")


def never(_left: bytes, _right: bytes) -> bool:
    return False


@pytest.mark.parametrize(
    ("recorded", "run", "verdict"),
    [
        (RecordedItem("succeeded", ONE), RAN, Verdict.SAME),
        (RecordedItem("succeeded", None, content_digest(ONE)), RAN, Verdict.SAME),
        (RecordedItem("succeeded", NEAR), RAN, Verdict.DIFFERENT),
        (RecordedItem("succeeded", None, content_digest(b"")), RAN, Verdict.DIFFERENT),
        (RecordedItem("succeeded", ONE), FAILED, Verdict.DIFFERENT),
        (RecordedItem("succeeded", ONE), KILLED, Verdict.DIFFERENT),
        (RecordedItem("user_error", error_type="KeyError"), FAILED, Verdict.SAME),
        (RecordedItem("user_error", error_type="Key"), FAILED, Verdict.DIFFERENT),
        (RecordedItem("user_error", error_type="KeyError"), RAN, Verdict.DIFFERENT),
        (RecordedItem("system_error"), RAN, Verdict.UNRECORDED),
    ],
)
def test_run_is_compared_with_what_was_agreed_on(
    recorded: RecordedItem, run: RunOutcome, verdict: Verdict
) -> None:
    assert compare_item(recorded, run, never) is verdict


@pytest.fixture(scope="module")
def statement(tmp_path_factory: pytest.TempPathFactory) -> Statement:
    """Return an admission of this very installation."""
    bench = GateBench(tmp_path_factory.mktemp("again") / "keys")
    (pure,) = (one.digest for one in shipped_flavors() if one.name == "pure")
    return msgspec.structs.replace(
        bench.statement(),
        level="pure",
        level_digest=load_level("pure").digest,
        flavor=pure,
        language_digest=LANGUAGE_DIGEST,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
    )


@pytest.mark.parametrize(
    ("source", "entry", "verdict"),
    [
        (CLOSE, "close", Verdict.EQUAL),
        (RAISES, "close", Verdict.DIFFERENT),
        (b"", "", Verdict.DIFFERENT),  # without a comparator only equal values are
    ],
)
def test_task_s_own_comparator_decides_about_other_bytes(
    statement: Statement, source: bytes, entry: str, verdict: Verdict
) -> None:
    case = Case(b"", b"", source, entry, b"", b"", b"")
    checked = CheckedCase(case, statement, 0, 1, None, ())  # type: ignore[arg-type]
    with _comparing(checked) as compare:
        assert compare_item(RecordedItem("succeeded", NEAR), RAN, compare) is verdict


def test_level_of_an_admission_of_this_installation_is_found(
    statement: Statement,
) -> None:
    assert find_level(statement).digest == statement.level_digest


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("python", "3.99", "Python 3.99"),
        ("level_digest", "0" * 64, "the level"),
        ("language_digest", "0" * 64, "the language layer"),
        ("libraries", ("0" * 64,), "libraries"),
        ("flavor", "0" * 64, "flavor"),
    ],
)
def test_what_is_not_here_as_it_was_admitted_is_named(
    statement: Statement, field: str, value: object, named: str
) -> None:
    changed = msgspec.structs.replace(statement, **{field: value})
    with pytest.raises(PolicyRefusal, match="STO-X013") as error:
        find_level(changed)
    assert named in error.value.message
