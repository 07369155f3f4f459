from __future__ import annotations

import pytest

from stoilo.server.engines.stock.installation.config_rules import (
    Surroundings,
    correct_settings,
)
from stoilo.server.engines.stock.project.config import edit_config, read_config
from tests.support.stockproject import CONFIG

HERE = Surroundings("here")
MADE = read_config(CONFIG.encode())


def corrected(around=HERE):
    changes = {one.tag: one.value for one in correct_settings(MADE, around)}
    return read_config(edit_config(CONFIG.encode(), changes))


def test_defaults_of_make_project_are_named():
    tags = {one.tag for one in correct_settings(MADE, HERE)}
    assert {"db_host", "host", "ignore_upload_certificates"} <= tags
    assert {"dont_generate_upload_certificates", "one_result_per_user_per_wu"} <= tags


def test_corrected_file_needs_no_correction():
    assert correct_settings(corrected(), HERE) == ()


def test_every_correction_says_why():
    assert all(len(one.why) > 20 for one in correct_settings(MADE, HERE))


def test_certificates_are_not_asked_of_copies_sent_without():
    under_way = Surroundings("here", uncertified=1)
    tags = {one.tag for one in correct_settings(MADE, under_way)}
    assert "ignore_upload_certificates" not in tags
    assert "dont_generate_upload_certificates" in tags


@pytest.mark.parametrize("quick", [True, False])
def test_hosts_ask_often_only_where_that_was_wanted(quick):
    config = corrected(Surroundings("here", quick=quick))
    left = correct_settings(config, Surroundings("here", quick=True))
    assert (left == ()) == quick


def test_other_project_on_this_machine_keeps_a_generous_quota():
    changes = {"daily_result_quota": "5000000"}
    generous = read_config(edit_config(CONFIG.encode(), changes))
    tags = {
        one.tag for one in correct_settings(generous, Surroundings("here", quick=True))
    }
    assert "daily_result_quota" not in tags


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("replace_download_url_by_timezone", "http://p/download"),
        ("user_filter", "1"),
    ],
)
def test_setting_by_which_tasks_would_fail_is_taken_out(tag, value):
    data = edit_config(CONFIG.encode(), {tag: value})
    changes = {one.tag: one.value for one in correct_settings(read_config(data), HERE)}
    assert tag in changes
    mended = read_config(edit_config(data, changes))
    assert correct_settings(mended, HERE) == ()
