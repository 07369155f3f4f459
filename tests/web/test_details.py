import msgspec
import pytest

from stoilo.web.details import describe_permission, judge_rules
from tests.support.archive import ArchiveWriter


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    with ArchiveWriter(tmp_path_factory.mktemp("data")) as archive:
        return archive.admit("t", b"def task(kwargs):\n    return 1\n")


def outcomes(record, **fields):
    return [
        rule.outcome for rule in judge_rules(msgspec.structs.replace(record, **fields))
    ]


def test_admission_without_remarks_passed_every_rule(record):
    assert set(outcomes(record)) == {"passed", "not asked for"}


@pytest.mark.parametrize(
    ("code", "words"), [("STO-P020", "hides nothing"), ("STO-P034", "function")]
)
def test_remark_stands_at_its_rule(record, code, words):
    rules = judge_rules(msgspec.structs.replace(record, codes=(code,)))
    (noted,) = [rule for rule in rules if rule.remarks]
    assert words in noted.demand
    assert noted.remarks[0].code == code
    assert noted.remarks[0].title


def test_remark_of_no_known_rule_is_not_lost(record):
    rule = judge_rules(msgspec.structs.replace(record, codes=("STO-Z999",)))[-1]
    assert rule.remarks[0].title == "a code of another version"


def test_reviews_are_counted(record):
    assert "signed by 2 reviewers" in outcomes(record, reviews=("ab" * 32, "cd" * 32))


def test_level_in_force_is_described(record):
    permission = describe_permission(record)
    assert permission.summary
    assert "math" in permission.modules


@pytest.mark.parametrize("fields", [{"level_digest": "ab" * 32}, {"level": "other"}])
def test_level_of_another_version_is_not_described(record, fields):
    changed = msgspec.structs.replace(record, **fields)
    assert describe_permission(changed).summary == ""
