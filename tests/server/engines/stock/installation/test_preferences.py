"""Preferences that were saved before the scheduler could read them keep their meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.engines.stock.installation.install import install_project
from stoilo.server.engines.stock.installation.levels import mark_preferences
from tests.support.stockproject import StockTree

OLD = "<max_level>{}</max_level>\n<require_review>{}</require_review>\n"


def saved(*parts):
    inner = "".join(f"<project_specific>\n{one}</project_specific>\n" for one in parts)
    return f"<project_preferences>\n{inner}</project_preferences>\n"


@pytest.mark.parametrize(
    ("level", "review", "work"),
    [("numeric", 0, "numeric"), ("pure", 1, "pure reviewed"), ("root", 0, "pure")],
)
def test_choice_of_before_is_what_the_scheduler_reads(level, review, work):
    marked = mark_preferences(saved(OLD.format(level, review)))
    assert f"<stoilo_work>{work}</stoilo_work>" in marked


def test_every_location_of_an_account_is_marked():
    marked = mark_preferences(saved(OLD.format("pure", 0), OLD.format("tensor", 1)))
    assert "<stoilo_work>pure</stoilo_work>" in marked
    assert "<stoilo_work>tensor reviewed</stoilo_work>" in marked


@given(st.text())
def test_marking_again_changes_nothing(text):
    once = mark_preferences(saved(text))
    assert mark_preferences(once) == once


def test_installation_marks_accounts_once_and_leaves_the_others(tmp_path):
    tree = StockTree(tmp_path)
    old = saved(OLD.format("numeric", 0)).encode() + b"J\xfcrgen"
    theirs = b"<project_preferences><app_id>7</app_id></project_preferences>"
    for prefs in (old, theirs, None):
        tree.sql("INSERT INTO user (project_prefs) VALUES (?)", [prefs])
    install_project(tree.root, tree.offer, url=tree.url)
    marked, *others = (one for (one,) in tree.sql("SELECT project_prefs FROM user"))
    assert b"<stoilo_work>numeric</stoilo_work>" in marked
    assert marked.endswith(b"J\xfcrgen")
    assert others == [theirs, None]
    assert install_project(tree.root, tree.offer, url=tree.url).steps == ()
