from pathlib import Path

import pytest

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.proof import LeafKind
from stoilo.audit.format.records import Mention, task_commitment
from stoilo.audit.log.seen import result_commitment
from stoilo.audit.monitor.finding import parse_commitments, parse_watches
from stoilo.core.errors import UsageError

HEX = "ab" * 32


def names(*texts: str, kind: LeafKind = LeafKind.KEY, digest: str = "00" * 32) -> str:
    """Return the watches of `texts` that a leaf with two mentions fulfils."""
    said = [Mention(MentionKind.COMMITMENT, HEX), Mention(MentionKind.CODE, "STO-R052")]
    return " ".join(
        parse_watches(texts).find({kind, Mention(MentionKind.DIGEST, digest), *said})
    )


@pytest.mark.parametrize(
    "text", [f"commitment:{HEX}", "code:STO-R052", "kind:key", f"digest:{'00' * 32}"]
)
def test_what_leaf_or_record_say_matches(text: str) -> None:
    assert names(text) == text


@pytest.mark.parametrize(
    "text", [f"digest:{HEX}", "code:STO-R053", "kind:policy", "key:gate"]
)
def test_what_they_do_not_say_does_not(text: str) -> None:
    assert not names(text)


def test_all_watches_that_match_are_given() -> None:
    assert names("kind:key", "code:STO-R052", "kind:policy") == "code:STO-R052 kind:key"


def test_file_gives_one_watch_a_line(tmp_path: Path) -> None:
    (tmp_path / "w").write_text(f"# mine\n\nkind:key  # keys\ncommitment:{HEX}\n")
    assert names(f"@{tmp_path / 'w'}") == f"commitment:{HEX} kind:key"


@pytest.mark.parametrize(
    "text",
    ["", "x", "kind:", "kind:other", "digest:AB", "code:R052", f"nonce:{HEX}", "@/no",
     f"commitment:{HEX}\n", "task:", "task:a b", "result:\u00e9", "key:" + "x" * 200],
)  # fmt: skip
def test_what_is_no_watch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="STO-L063"):
        parse_watches([text])


def test_file_with_a_bad_line_names_it(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"kind:key\nkind:\xff\n")
    with pytest.raises(UsageError, match="kind:"):
        parse_watches([f"@{tmp_path / 'w'}"])


def test_known_submitters_are_given_plain_or_as_commitments() -> None:
    assert parse_commitments([HEX, f"commitment:{HEX}"]) == {HEX}


def test_values_can_be_looked_up_directly() -> None:
    watches = parse_watches([f"commitment:{HEX}"])
    assert len(watches.find([Mention(kind, HEX) for kind in MentionKind])) == 1


def test_ids_stand_for_their_commitments() -> None:
    watches = parse_watches(["task:t1", "result:t1_1_0"])
    wanted = (task_commitment("t1"), result_commitment("t1_1_0"))
    found = [watches.find([Mention(MentionKind.COMMITMENT, one)]) for one in wanted]
    assert found == [("task:t1",), ("result:t1_1_0",)]
