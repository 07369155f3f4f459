"""What a host would refuse is not sent to it; its word only takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from stoilo.core.boinc.messages import SchedulerRequest, Wishes
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.installation import LEVEL_ORDER, OptIn
from stoilo.executor.volunteer.main import wishes_of
from stoilo.executor.volunteer.scheduler_rpc import render_request
from stoilo.server.engines.embedded.accounts.preferences import allowed_apps
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.web.requests import parse_request
from tests.support.engine import make_spec

LEVELS = ("pure", "numeric", "tensor", "gpu")
TOPICS = st.lists(st.sampled_from(["health", "physics", "a.b/c"]), unique=True)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def make(bench):
    bench.engine.create_workunits([make_spec("w_1")])


@pytest.mark.parametrize(
    ("wishes", "offered"),
    [
        (Wishes(require_review=True), {"reviewed": True}),
        (Wishes(require_public_source=True), {"public_source": True}),
        (Wishes(topics=("health",)), {"topics": ("art", "health")}),
        (Wishes(topics=("a.b/c", "health")), {"topics": ("a.b/c",)}),
        (
            Wishes("pure", *[True] * 2, ("health",)),
            {"reviewed": True, "public_source": True, "topics": ("health",)},
        ),
    ],
)
def test_host_gets_what_it_asks_for_and_nothing_else(bench, wishes, offered):
    make(bench)
    assert bench.fetch(1, wishes=wishes) == []
    bench.engine.create_workunits([replace(make_spec("w_2"), **offered)])
    assert bench.fetch(1, wishes=wishes) == ["w_2_0"]
    assert len(bench.fetch(2)) == 2  # the negative control: without wishes, both


def test_topic_is_matched_as_a_whole(bench):
    bench.engine.create_workunits([replace(make_spec("w_1"), topics=("healthcare",))])
    assert bench.fetch(1, wishes=Wishes(topics=("health",))) == []
    assert bench.fetch(1, wishes=Wishes(topics=("h%",))) == []


@pytest.mark.parametrize(("asked", "given"), [("pure", []), ("numeric", ["w_1_0"])])
def test_level_of_the_host_lowers_the_accounts(bench, asked, given):
    bench.engine.create_workunits([make_spec("w_1", app="numeric")])
    assert bench.fetch(1, level="numeric", wishes=Wishes(asked)) == given


@given(st.sampled_from(LEVELS), st.text(max_size=8) | st.sampled_from(LEVELS))
def test_wish_never_opens_a_level(account, asked):
    apps = LEVELS[: LEVELS.index(account) + 1]
    assert set(allowed_apps(apps, Wishes(asked))) <= set(apps)


def test_status_counts_only_hosts_that_would_take_it(bench):
    make(bench)
    bench.fetch(1, wishes=Wishes(require_review=True))
    bench.fetch(2, wishes=Wishes(topics=("health",)))
    bench.fetch(3, wishes=Wishes(require_public_source=True))
    assert bench.engine.status("w_1").users_attached == 0
    assert "0 attached" in bench.engine.status("w_1").explanation
    bench.request(4)
    assert bench.engine.status("w_1").users_attached == 1
    fitting = {"reviewed": True, "public_source": True, "topics": ("health",)}
    bench.engine.create_workunits([replace(make_spec("w_2"), **fitting)])
    assert bench.engine.status("w_2").users_attached == 4


def test_changed_wishes_replace_the_old_ones(bench):
    make(bench)
    bench.fetch(1, wishes=Wishes(require_review=True))
    assert bench.fetch(1, wishes=Wishes()) == ["w_1_0"]
    with bench.engine._database.read() as connection:
        assert connection.scalar(select(schema.hosts.c.require_review)) == 0


@given(
    st.builds(
        Wishes,
        st.sampled_from(["", *LEVELS]),
        st.booleans(),
        st.booleans(),
        TOPICS.map(sorted).map(tuple),
    )
)
def test_wishes_travel_whole(wishes):
    request = SchedulerRequest("key", 1, 2, "a" * 32, wishes=wishes)
    assert parse_request(render_request(request)).wishes == wishes


@pytest.mark.parametrize("topics", [["a,b"], ["x" * 65], [""], ["a"] * 33, ["%"]])
def test_unusable_topics_are_refused(topics):
    request = SchedulerRequest(
        "key", 1, 2, "a" * 32, wishes=Wishes(topics=tuple(topics))
    )
    with pytest.raises(TrustError, match="STO-X030"):
        parse_request(render_request(request))


@given(
    st.builds(
        OptIn,
        st.sampled_from(sorted(LEVEL_ORDER)),
        st.booleans(),
        st.booleans(),
        st.frozensets(st.text(max_size=70), max_size=40),
    )
)
def test_any_opt_in_makes_wishes_that_a_project_can_read(opt_in):
    wishes = wishes_of(opt_in)
    request = SchedulerRequest("key", 1, 2, "a" * 32, wishes=wishes)
    assert parse_request(render_request(request)).wishes == wishes
    assert bool(wishes.topics) == bool(opt_in.topics)
