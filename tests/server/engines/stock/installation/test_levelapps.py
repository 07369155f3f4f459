from __future__ import annotations

import re

import pytest

from stoilo.executor.xmltext import XmlBounds, parse_xml
from stoilo.server.engines.stock.installation.levelapps import (
    APPS,
    MOST_APPS,
    add_apps,
    missing_plan_classes,
    plan_class,
    set_plan_classes,
)
from stoilo.server.engines.stock.installation.preferences import render_preferences

BOUNDS = XmlBounds(100_000)
OTHER = "<plan_classes>\n<plan_class><name>mt</name></plan_class>\n</plan_classes>\n"


def choices(app):
    """The levels with which a volunteer gets an app's tasks; None where all do."""
    root = parse_xml(set_plan_classes("").encode(), BOUNDS)
    for one in root.every("plan_class"):
        if one.string("name") == plan_class(app):
            return one.string("project_prefs_regex")
    return None


def test_apps_fit_into_a_stock_scheduler():
    assert APPS[0] == "pure"
    assert len(APPS) <= MOST_APPS


def test_pure_goes_to_everybody_and_nothing_else_does():
    assert plan_class("pure") == ""
    assert all(plan_class(app) for app in APPS[1:])


@pytest.mark.parametrize(
    ("app", "chosen", "gets"),
    [
        ("numeric", "numeric", True),
        ("numeric", "tensor", True),
        ("numeric", "pure", False),
        ("numeric", "", False),
        ("tensor", "numeric", False),
        ("tensor", "tensors", False),
    ],
)
def test_level_is_sent_to_who_chose_it_or_a_higher_one(app, chosen, gets):
    assert bool(re.search(choices(app), chosen)) == gets


def test_absent_choice_is_no_choice():
    text = set_plan_classes("")
    assert "project_prefs_default_true" not in text


def test_classes_of_others_stay():
    text = set_plan_classes(OTHER)
    assert "<name>mt</name>" in text
    assert missing_plan_classes(text) == ()
    assert set_plan_classes(text) == text


def test_changed_class_of_ours_is_missed_and_set_again():
    text = set_plan_classes(OTHER).replace("^(numeric", "^(pure|numeric")
    assert missing_plan_classes(text) == ("numeric",)
    assert set_plan_classes(text) == set_plan_classes(OTHER)


def test_app_that_is_named_is_not_named_again():
    once = add_apps("<boinc>\n</boinc>\n", APPS)
    assert add_apps(once, APPS) == once
    assert len(parse_xml(once.encode(), BOUNDS).every("app")) == len(APPS)


def test_page_offers_every_level_and_starts_with_the_lowest():
    page = render_preferences()
    assert all(f"'{app}' =>" in page for app in APPS)
    assert "<max_level>pure</max_level>" in page
