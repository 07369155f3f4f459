import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import MentionKind
from stoilo.audit.format.records import task_commitment
from stoilo.core.errors import UsageError
from stoilo.web.archive import name_task, parse_query

HEX = "ab" * 32


@given(st.text(max_size=200))
def test_any_text_is_a_question_or_refused(text):
    try:
        query = parse_query(text)
    except UsageError as error:
        assert error.code == "STO-L063"
    else:
        assert query.index is not None or query.mentions


def test_number_is_a_place():
    assert parse_query(" 17 ").index == 17


def test_code_is_found_in_any_case():
    (mention,) = parse_query("sto-p040").mentions
    assert (mention.kind, mention.value) == (MentionKind.CODE, "STO-P040")


def test_digest_may_be_of_any_kind():
    kinds = {mention.kind for mention in parse_query(HEX.upper()).mentions}
    assert kinds == {MentionKind.COMMITMENT, MentionKind.DIGEST, MentionKind.KEY}


def test_task_id_becomes_its_commitment():
    assert parse_query("0a1b").mentions[0].value == task_commitment("0a1b")
    assert name_task("0a1b") == task_commitment("0a1b")


@pytest.mark.parametrize("ending", ["_1", "_1_0", "_12_7_3"])
def test_name_that_boinc_shows_is_the_tasks(ending):
    task, name = HEX[:32], f"{HEX[:32]}{ending}"
    assert name_task(name) == task_commitment(task)
    assert parse_query(f" {name} ").mentions[0].value == task_commitment(task)


@pytest.mark.parametrize("name", ["ab_1_0", f"{HEX[:32]}_x", f"{HEX[:31]}_1_0"])
def test_name_of_another_form_is_an_id_of_its_own(name):
    assert name_task(name) == task_commitment(name)


def test_commitment_names_its_task():
    assert name_task(HEX) == HEX


@pytest.mark.parametrize("text", ["", "../etc", "a b", "x" * 65, "<b>", "é"])
def test_other_names_of_tasks_are_refused(text):
    with pytest.raises(UsageError, match="STO-L063"):
        name_task(text)
