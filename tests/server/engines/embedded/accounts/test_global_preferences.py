from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import SchedulerRequest
from stoilo.core.boinc.xml import escape
from stoilo.server.engines.embedded.accounts.preferences import (
    GLOBAL_TAGS,
    exchange_global_preferences,
    parse_global_preferences,
)
from stoilo.server.engines.embedded.accounts.roster import open_roster
from stoilo.server.engines.embedded.scheduling.authenticate import find_visitor

NOW = 1_800_000_000
TEXTS = st.text(max_size=12) | st.floats().map(str) | st.integers().map(str)


def document(mod_time=NOW, more="<start_hour>8</start_hour>"):
    return (
        f"<global_preferences><mod_time>{mod_time}</mod_time>{more}"
        "</global_preferences>"
    )


@given(st.text(max_size=300))
def test_any_text_ends_in_preferences_or_none(text):
    parse_global_preferences(text)


@given(st.dictionaries(st.sampled_from(sorted(GLOBAL_TAGS)) | st.text(), TEXTS))
@example({"start_hour": "-0"})
def test_what_goes_on_is_known_names_and_numbers_alone(values):
    inner = "".join(
        f"<{tag}>{escape(text)}</{tag}>" for tag, text in values.items() if tag
    )
    found = parse_global_preferences(document(more=inner))
    if found is None:
        return
    modified_at, shown = found
    assert parse_global_preferences(shown) == found
    assert modified_at == NOW
    settings = re.findall(r"<(\w+)>([0-9.]+)</\1>\n", shown)
    assert {tag for tag, _ in settings} <= {*GLOBAL_TAGS, "mod_time"}
    assert all(0.0 <= float(value) <= 1e12 for _, value in settings)
    assert len(settings) == len(shown.splitlines())


def test_clients_own_form_is_read():
    found = parse_global_preferences(
        document(
            more="<source_project>http://x/</source_project><run_on_batteries/>"
            "<max_ncpus_pct>50.000000</max_ncpus_pct><run_if_user_active>0"
            "</run_if_user_active><start_hour>nan</start_hour><evil>1</evil>"
        )
    )
    kept = (
        f"<mod_time>{NOW}</mod_time>\n<max_ncpus_pct>50.000000</max_ncpus_pct>\n"
        "<run_if_user_active>0.000000</run_if_user_active>\n"
        "<run_on_batteries>1.000000</run_on_batteries>\n"
    )
    assert found == (NOW, kept)


@pytest.mark.parametrize(
    "more",
    [
        "<venue name='home'><start_hour>1</start_hour></venue>",
        "<day_prefs><day_of_week>1</day_of_week></day_prefs>",
        "",
        "<unknown>1</unknown>",
    ],
)
def test_documents_that_cannot_be_said_whole_are_left_alone(more):
    keep = "<start_hour>8</start_hour>" if "prefs" in more or "venue" in more else ""
    assert parse_global_preferences(document(more=keep + more)) is None


@pytest.fixture
def exchange(tmp_path):
    roster = open_roster(tmp_path)
    account = roster.accounts.ensure("a@example.org", 1)
    request = SchedulerRequest(account.key, 0, 1, "c")

    def call(sent, now=NOW, *, weak=False):
        with roster._database.write() as connection:
            stored = find_visitor(connection, request).row
            return exchange_global_preferences(connection, stored, sent, now, weak=weak)

    yield call
    roster.close()


def test_newest_goes_to_the_other_hosts_and_not_back(exchange):
    assert exchange(document(NOW - 100)) == ""
    assert "<mod_time>1799999900<" in exchange("")
    assert exchange(document(NOW - 50)) == ""
    assert "<mod_time>1799999950<" in exchange(document(NOW - 100))
    assert exchange(document(NOW - 50)) == ""


def test_time_from_the_future_is_not_kept(exchange):
    assert exchange(document(NOW + 10 * 86_400)) == ""
    assert exchange("") == ""


def test_unreadable_preferences_are_not_answered_with_others(exchange):
    exchange(document(NOW - 100))
    assert exchange("<venue name='x'></venue><mod_time>1</mod_time>") == ""


def test_clients_text_is_never_echoed(exchange):
    exchange(document(more="<start_hour>8</start_hour><x>SECRET</x><!-- SECRET -->"))
    assert "SECRET" not in exchange("")


def test_weak_key_reads_preferences_and_changes_none(exchange):
    assert exchange(document(NOW - 200), weak=True) == ""
    assert exchange("") == ""
    exchange(document(NOW - 100))
    assert "<mod_time>1799999900<" in exchange(document(NOW - 200), weak=True)
    assert exchange(document(NOW - 50), weak=True) == ""
    assert "<mod_time>1799999900<" in exchange("")
