from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import InternalError, StoiloError, UsageError
from stoilo.server.engines.embedded.accounts.account_file import (
    account_file_name,
    render_account_file,
    write_account,
)

URL = "http://127.0.0.1:18093/"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "account_127.0.0.1_18093.xml"),
        ("https://Project.Example", "account_project.example.xml"),
        ("https://a-b.example/sub/dir/", "account_a-b.example_sub_dir.xml"),
    ],
)
def test_file_is_named_as_a_client_names_it(url, name):
    assert account_file_name(url) == name


@example("http://[")
@given(st.text(max_size=60) | st.text(max_size=40).map("http://{}".format))
def test_any_address_ends_in_a_plain_name_or_our_error(url):
    try:
        name = account_file_name(url)
    except StoiloError:
        return
    assert "/" not in name
    assert name.startswith("account_")


def test_file_reads_as_address_and_key():
    text = render_account_file("http://x.example", "k" * 32)
    root = parse_xml(text.encode(), XmlBounds(4096))
    assert root.string("master_url") == "http://x.example/"
    assert root.string("authenticator") == "k" * 32


def test_file_is_the_owners_alone_and_replaced_whole(tmp_path):
    for key in ("a" * 32, "b" * 32):
        path = write_account(tmp_path, URL, key)
    assert list(tmp_path.iterdir()) == [path]
    assert "b" * 32 in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_directory_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="STO-E070"):
        write_account(tmp_path / "none", URL, "k")
    (tmp_path / account_file_name(URL)).mkdir()
    with pytest.raises(UsageError, match="STO-E070"):
        write_account(tmp_path, URL, "k")


def test_link_in_its_place_is_replaced_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / account_file_name(URL)).symlink_to(other)
    write_account(tmp_path, URL, "k")
    assert other.read_text() == "mine"


def test_disk_that_refuses_leaves_nothing(tmp_path, monkeypatch):
    def refuse(_descriptor):
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InternalError, match="STO-E070"):
        write_account(tmp_path, URL, "k")
    assert not list(tmp_path.iterdir())
