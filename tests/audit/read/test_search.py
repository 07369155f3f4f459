import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.proof import LeafKind
from stoilo.audit.format.records import task_commitment
from stoilo.audit.read.reader import open_log
from stoilo.audit.read.search import parse_query, search_log
from stoilo.core.errors import TrustError, UsageError
from tests.support.auditlog import START, SampleLog


def places(sample: SampleLog, *words: str) -> list[int]:
    log = open_log(sample.data_dir, sample.policy)
    return [one.index for one in search_log(log, parse_query(words)).found]


def test_kind_finds_all_of_the_kind(sample: SampleLog) -> None:
    assert places(sample, "kind:admission") == list(sample.admissions)
    assert places(sample, "kind:admission", "kind:refusals") == [
        *sample.admissions,
        sample.size - 1,
    ]


def test_commitment_finds_what_concerns_a_task(sample: SampleLog) -> None:
    task, first = task_commitment("task-1"), sample.admissions[1]
    assert places(sample, f"commitment:{task}") == [first + 1, first + 2]
    assert places(sample, task) == [first + 1, first + 2]
    assert places(sample, f"commitment:{task}", "kind:result") == [first + 2]


def test_digest_finds_the_published_source_and_the_leaf(sample: SampleLog) -> None:
    assert places(sample, f"digest:{sample.source}") == [sample.admissions[0] + 1]
    leaf = open_log(sample.data_dir).entry(sample.admissions[2]).leaf
    assert leaf is not None
    assert places(sample, f"digest:{leaf.digest}") == [sample.admissions[2]]


def test_code_finds_the_refusals(sample: SampleLog) -> None:
    assert places(sample, "code:STO-P011") == [sample.size - 1]
    assert places(sample, "STO-P011") == [sample.size - 1]
    assert places(sample, "STO-P013") == []


def test_time_is_a_half_open_range(sample: SampleLog) -> None:
    second, third = START + 86_400, START + 2 * 86_400
    words = [f"since:{second}", f"until:{third}"]
    assert places(sample, "kind:admission", *words) == [sample.admissions[1]]
    assert places(sample, "kind:admission", "since:2027-01-17") == list(
        sample.admissions[2:]
    )
    assert places(sample, "kind:admission", "until:2027-01-15") == [
        sample.admissions[0]
    ]


def test_limit_bounds_what_is_kept_and_counts_the_rest(sample: SampleLog) -> None:
    log = open_log(sample.data_dir, sample.policy)
    result = search_log(log, parse_query(["kind:admission"]), limit=3)
    assert (len(result.found), result.more) == (3, 1)
    assert (result.searched, result.without_record) == (sample.size, 0)


def test_withheld_record_is_counted(sample: SampleLog, tmp_path: Path) -> None:
    copy = shutil.copytree(sample.data_dir / "audit/log", tmp_path / "log")
    result = search_log(open_log(copy, sample.policy), parse_query(["kind:result"]))
    assert result.without_record == len(sample.tasks)
    assert len(result.found) == len(sample.tasks)


def test_hidden_entry_is_noticed(sample: SampleLog, tmp_path: Path) -> None:
    """Who lists the entries shows another admission in the place of one."""
    copy = shutil.copytree(sample.data_dir / "audit/log", tmp_path / "log")
    bundle = copy / f"tile/entries/001.p/{sample.size - 256}"
    sound = bundle.read_bytes()
    bundle.write_bytes(sound.replace(b"admission", b"retention", 1))
    with pytest.raises(TrustError, match=r"STO-L032|STO-L14"):
        search_log(open_log(copy, sample.policy), parse_query(["kind:admission"]))
    bundle.write_bytes(sound)
    search_log(open_log(copy, sample.policy), parse_query(["kind:admission"]))


@pytest.mark.parametrize(
    "word",
    [
        "",
        "hello",
        "kind:secret",
        "kind:",
        "digest:00",
        "digest:" + "G" * 64,
        "commitment:" + "0" * 63,
        "code:P012",
        "since:yesterday",
        "since:2027-13-01",
        "until:-5",
        "name:me",
        ":x",
    ],
)
def test_query_that_means_nothing_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="STO-L063"):
        parse_query([word])


def test_bare_digest_is_looked_for_as_anything() -> None:
    kinds = {one.kind for one in parse_query(["0" * 64]).mentions}
    assert kinds == {MentionKind.DIGEST, MentionKind.COMMITMENT, MentionKind.KEY}
    assert parse_query(["kind:key", "key:gate"]).kinds == {LeafKind.KEY}


@given(st.lists(st.text(max_size=20) | st.from_regex(r"[a-z]{4}:[0-9a-z-]{0,10}")))
def test_any_words_are_a_query_or_refused(words: list[str]) -> None:
    try:
        parse_query(words)
    except UsageError as error:
        assert error.code == "STO-L063"
