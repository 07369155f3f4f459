"""What a client's words come to, and when it counts as gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.executor.verifier.boinc_session import (
    SILENCE_S,
    Control,
    QuitReason,
    Standing,
    heed,
    is_lost,
    parse_control,
)

ASKED = st.lists(st.frozensets(st.sampled_from(Control)), max_size=8)


def after(*words):
    standing = Standing()
    for word in words:
        standing = heed(standing, frozenset(word))
    return standing


def test_suspend_and_resume_take_turns():
    assert after([Control.SUSPEND]).suspended
    assert not after([Control.SUSPEND], [Control.RESUME]).suspended
    assert not after([Control.SUSPEND, Control.RESUME]).suspended


@given(ASKED)
def test_ending_is_never_taken_back(words):
    standing = Standing()
    for word in words:
        before, standing = standing, heed(standing, word)
        assert before.ending is None or standing.ending is not None
        assert (
            before.ending is not QuitReason.ABORT or standing.ending is QuitReason.ABORT
        )


def test_abort_is_stronger_than_quit():
    assert after([Control.QUIT]).ending is QuitReason.QUIT
    assert after([Control.QUIT, Control.ABORT]).ending is QuitReason.ABORT
    assert after([Control.ABORT], [Control.QUIT]).ending is QuitReason.ABORT
    assert (QuitReason.QUIT.value, QuitReason.ABORT.value) == (0, 194)


def test_other_words_ask_for_nothing():
    assert heed(
        Standing(), parse_control(b"<reread_app_info/><network_available/>")
    ) == (Standing())


@pytest.mark.parametrize(
    ("was_parent", "exists", "is_parent", "silent_s", "lost"),
    [
        (True, True, True, 1000.0, False),
        (True, True, False, 0.0, True),
        (True, False, False, 0.0, True),
        (False, True, False, 1000.0, False),
        (False, False, False, SILENCE_S - 1, False),
        (False, False, False, SILENCE_S + 1, True),
    ],
)
def test_client_is_lost(was_parent, exists, is_parent, silent_s, lost):
    seen = {"exists": exists, "was_parent": was_parent, "is_parent": is_parent}
    assert is_lost(silent_s, **seen) is lost
