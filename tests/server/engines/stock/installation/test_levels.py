from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.server.engines.stock.installation.levels import (
    APPS,
    MOST_APPS,
    add_apps,
    chosen_work,
    missing_plan_classes,
    plan_class,
    plan_classes,
    render_preferences,
    set_plan_classes,
)
from stoilo.server.engines.stock.project.host_filter import (
    HOST_FILTERS,
    batch_of,
)
from tests.support.stocktools.planclasses import fits

BOUNDS = XmlBounds(100_000)
OTHER = "<plan_classes>\n<plan_class><name>mt</name></plan_class>\n</plan_classes>\n"


def gets(chosen, app, *, batch=0):
    """The app's plan classes by which a volunteer has a workunit; None: chose nothing."""
    prefs = "" if chosen is None else f"<stoilo_work>{chosen}</stoilo_work>"
    specs = set_plan_classes("")
    return [one for one in plan_classes(app) if fits(specs, one, prefs, batch)]


def test_apps_fit_into_a_stock_scheduler():
    assert APPS[0] == "pure"
    assert len(APPS) <= MOST_APPS


def test_who_chose_nothing_gets_pure_and_nothing_else():
    assert gets(None, "pure") == ["stoilo_pure"]
    assert gets(None, "numeric") == gets(None, "tensor") == []


@pytest.mark.parametrize(
    ("app", "chosen", "sent"),
    [
        ("pure", "pure", True),
        ("pure", "tensor", True),
        ("numeric", "numeric", True),
        ("numeric", "tensor", True),
        ("numeric", "pure", False),
        ("numeric", "", False),
        ("tensor", "numeric", False),
        ("tensor", "tensors", False),
    ],
)
def test_level_is_sent_to_who_chose_it_or_a_higher_one(app, chosen, sent):
    assert bool(gets(chosen, app)) == sent


@given(
    st.sampled_from(APPS),
    st.sampled_from(APPS),
    st.sampled_from(HOST_FILTERS),
    st.booleans(),
    st.booleans(),
)
def test_only_what_a_volunteer_wants_is_sent_and_by_one_class(
    app, level, wish, reviewed, public
):
    allowed = APPS.index(level) >= APPS.index(app)
    wanted = (reviewed or not wish.reviewed) and (public or not wish.public)
    batch = batch_of(reviewed=reviewed, public=public)
    found = gets(chosen_work(level, wish), app, batch=batch)
    assert found == [plan_class(app, wish)] * (allowed and wanted)


def test_classes_of_others_stay():
    text = set_plan_classes(OTHER)
    assert "<name>mt</name>" in text
    assert missing_plan_classes(text) == ()
    assert set_plan_classes(text) == text


def test_changed_class_of_ours_is_missed_and_set_again():
    text = set_plan_classes(OTHER).replace("^(numeric", "^(pure|numeric")
    assert missing_plan_classes(text) == plan_classes("numeric")
    assert set_plan_classes(text) == set_plan_classes(OTHER)


def test_app_that_is_named_is_not_named_again():
    once = add_apps("<boinc>\n</boinc>\n", APPS)
    assert add_apps(once, APPS) == once
    assert len(parse_xml(once.encode(), BOUNDS).every("app")) == len(APPS)


def test_page_offers_every_level_and_starts_with_the_lowest():
    page = render_preferences()
    assert all(f"'{app}' =>" in page for app in APPS)
    assert "<max_level>pure</max_level>" in page
    assert "<stoilo_work>pure</stoilo_work>" in page
