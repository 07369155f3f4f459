"""What a volunteer chose on the server takes away and never gives (I4)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import MOST_TOPICS, TOPIC, Wishes
from stoilo.core.errors import UsageError
from stoilo.executor.verifier.boinc_slot import parse_init_data
from stoilo.executor.verifier.installation import LEVEL_ORDER, OptIn, lower_by_server
from stoilo.server.engines.embedded.accounts.preferences import (
    LEVELS,
    NO_TOPIC,
    ProjectPreferences,
    check_preferences,
    load_preferences,
    narrow_wishes,
    project_preferences,
    save_preferences,
)
from tests.support.engine import make_spec

TOPICS = st.lists(st.sampled_from(["art", "health", "physics"]), unique=True)
CHOICES = st.builds(
    ProjectPreferences,
    st.lists(st.sampled_from(LEVELS), unique=True).map(tuple),
    st.booleans(),
    st.booleans(),
    TOPICS.map(tuple),
)
OPT_INS = st.builds(
    OptIn, st.sampled_from(sorted(LEVEL_ORDER)), st.booleans(), st.booleans()
)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def choose(bench, user, **fields):
    account = bench.engine.accounts.ensure(f"u{user}@example.org", bench.clock())
    with bench.engine._database.write() as connection:
        chosen = ProjectPreferences(**fields)
        save_preferences(connection, account.user_id, chosen)
    return account


def fetch(bench, user, **fields):
    """Like `bench.fetch`, without touching the account's level."""
    account = bench.engine.accounts.ensure(f"u{user}@example.org", bench.clock())
    return bench.fetch(user, level=None, key=account.weak_key, **fields)


def init_data(preferences):
    """Return what a client makes of a reply's preferences in a slot."""
    specific = re.search(
        "<project_specific>(.*)</project_specific>", preferences, re.DOTALL
    )
    return (
        "<app_init_data><app_name>pure</app_name><project_preferences>\n"
        f"{specific[1]}</project_preferences><wu_name>w</wu_name>"
        "<result_name>w_0</result_name></app_init_data>"
    ).encode()


def in_the_slot(chosen):
    return parse_init_data(init_data(project_preferences(chosen))).preferences


# ------------------------------------------------------------------ on the host


def test_verifier_reads_the_very_elements_that_the_server_writes():
    chosen = ProjectPreferences(
        ("pure", "tensor"), require_review=True, require_public_source=True
    )
    read = in_the_slot(chosen)
    assert read.max_level == "tensor"
    assert read.require_review
    assert read.require_public_source
    assert in_the_slot(ProjectPreferences()).max_level == "pure"


@given(OPT_INS, CHOICES)
def test_server_that_raises_preferences_changes_nothing_on_the_host(own, chosen):
    lowered = lower_by_server(own, in_the_slot(chosen))
    assert LEVEL_ORDER[lowered.max_level] <= LEVEL_ORDER[own.max_level]
    assert lowered.require_review >= own.require_review
    assert lowered.require_public_source >= own.require_public_source
    everything = ProjectPreferences(LEVELS)
    assert lower_by_server(own, in_the_slot(everything)) == own


def test_server_that_lowers_preferences_lowers_the_host():
    own = OptIn("tensor")
    chosen = ProjectPreferences(("numeric",), require_review=True)
    lowered = lower_by_server(own, in_the_slot(chosen))
    assert (lowered.max_level, lowered.require_review) == ("numeric", True)


# ------------------------------------------------------------------ rules


@given(
    st.builds(Wishes, st.just(""), st.booleans(), st.booleans(), TOPICS.map(tuple)),
    CHOICES,
)
def test_narrowed_wishes_ask_for_no_more_than_either_side(wishes, chosen):
    both = narrow_wishes(wishes, chosen)
    assert both.require_review == (wishes.require_review or chosen.require_review)
    for side in (wishes.topics, chosen.topics):
        assert not side or set(both.topics) - {NO_TOPIC} <= set(side)
        assert not side or both.topics


def test_no_task_can_carry_the_topic_of_nothing():
    assert TOPIC.fullmatch(NO_TOPIC) is None


@pytest.mark.parametrize(
    "chosen",
    [
        ProjectPreferences(("root",)),
        ProjectPreferences(topics=("a,b",)),
        ProjectPreferences(topics=("x" * 65,)),
        ProjectPreferences(topics=tuple(f"t{n}" for n in range(MOST_TOPICS + 1))),
    ],
)
def test_unusable_choices_are_refused(chosen):
    with pytest.raises(UsageError, match="STO-E015"):
        check_preferences(chosen)


# ------------------------------------------------------------------ in the database


def test_choices_are_stored_and_move_the_accounts_level(bench):
    account = choose(bench, 1, levels=("tensor", "pure"), topics=("b", "a"))
    with bench.engine._database.read() as connection:
        stored = load_preferences(connection, account.user_id)
    assert stored == ProjectPreferences(("pure", "tensor"), topics=("a", "b"))
    assert bench.engine.accounts.ensure("u1@example.org", 1).max_level == "tensor"


def test_level_set_by_the_operator_keeps_the_other_choices(bench):
    account = choose(bench, 1, levels=("numeric",), require_review=True)
    bench.engine.accounts.ensure("u1@example.org", 1, max_level="tensor")
    with bench.engine._database.read() as connection:
        stored = load_preferences(connection, account.user_id)
    assert stored == ProjectPreferences(LEVELS[:3], require_review=True)


# ------------------------------------------------------------------ dispatch


@pytest.mark.parametrize(
    ("chosen", "offered"),
    [
        ({"levels": ("numeric",)}, {"app": "numeric"}),
        ({"require_review": True}, {"reviewed": True}),
        ({"require_public_source": True}, {"public_source": True}),
        ({"topics": ("health",)}, {"topics": ("health",)}),
    ],
)
def test_only_what_was_chosen_is_sent(bench, chosen, offered):
    bench.engine.create_workunits([make_spec("plain_1")])
    choose(bench, 1, **chosen)
    assert fetch(bench, 1) == []
    bench.engine.create_workunits([replace(make_spec("fits_1"), **offered)])
    assert fetch(bench, 1) == ["fits_1_0"]
    assert "plain_1_0" in fetch(bench, 2)  # the negative control: nothing chosen


def test_client_of_a_user_who_opted_in_to_nothing_gets_nothing_above_pure(bench):
    bench.engine.create_workunits(
        [make_spec(f"{level}_1", app=level) for level in LEVELS]
    )
    choose(bench, 1)
    assert fetch(bench, 1) == ["pure_1_0"]


def test_status_counts_only_users_who_chose_the_level(bench):
    bench.engine.create_workunits([make_spec("w_1"), make_spec("n_1", app="numeric")])
    for user, levels in enumerate([("numeric",), ("pure",), ()], 1):
        account = choose(bench, user, levels=levels)
        bench.request(user, level=None, key=account.weak_key)
    bench.request(4, level="numeric")
    attached = [bench.engine.status(name).users_attached for name in ("w_1", "n_1")]
    assert attached == [3, 2]


def test_topics_of_account_and_host_without_a_common_one_leave_nothing(bench):
    topics = ("art", "health")
    bench.engine.create_workunits([replace(make_spec("w_1"), topics=topics)])
    choose(bench, 1, topics=("health",))
    assert fetch(bench, 1, wishes=Wishes(topics=("art",))) == []
    assert fetch(bench, 1, wishes=Wishes(topics=("health",))) == ["w_1_0"]


def test_reply_carries_the_preferences(bench):
    account = choose(bench, 1, levels=("numeric",))
    reply = bench.request(1, level=None, key=account.weak_key)
    assert "<max_level>numeric</max_level>" in reply.project_preferences
    assert "<app_id>2</app_id>" in reply.project_preferences
