from __future__ import annotations

import pytest

from stoilo.server.engines.stock.installation.config_rules import correct_settings
from stoilo.server.engines.stock.project.config import edit_config, read_config
from tests.support.stockproject import CONFIG

DATA = CONFIG.encode()
MADE = read_config(DATA)


def wrong(config=MADE, **around):
    return correct_settings(config, "here", **around)


def corrected(data=DATA, **around):
    found = wrong(read_config(data), **around)
    changes = {tag: value for tag, (value, _) in found.items()}
    return read_config(edit_config(data, changes))


def test_defaults_of_make_project_are_named():
    tags = set(wrong())
    assert {"db_host", "host", "ignore_upload_certificates"} <= tags
    assert {"dont_generate_upload_certificates", "one_result_per_user_per_wu"} <= tags


def test_corrected_file_needs_no_correction():
    assert wrong(corrected()) == {}


def test_every_correction_says_why():
    assert all(len(why) > 20 for _, why in wrong().values())


def test_certificates_are_not_asked_of_copies_sent_without():
    tags = set(wrong(uncertified=1))
    assert "ignore_upload_certificates" not in tags
    assert "dont_generate_upload_certificates" in tags


@pytest.mark.parametrize("quick", [True, False])
def test_hosts_ask_often_only_where_that_was_wanted(quick):
    assert (wrong(corrected(quick=quick), quick=True) == {}) == quick


def test_other_project_on_this_machine_keeps_a_generous_quota():
    changes = {"daily_result_quota": "5000000"}
    generous = read_config(edit_config(DATA, changes))
    assert "daily_result_quota" not in wrong(generous, quick=True)


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("replace_download_url_by_timezone", "http://p/download"),
        ("user_filter", "1"),
    ],
)
def test_setting_by_which_tasks_would_fail_is_taken_out(tag, value):
    data = edit_config(DATA, {tag: value})
    assert tag in wrong(read_config(data))
    assert wrong(corrected(data)) == {}
