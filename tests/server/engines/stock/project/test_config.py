from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.server.engines.stock.project.config import Daemon, edit_config, read_config
from tests.support.stockproject import CONFIG

DATA = CONFIG.encode()
TAGS = st.sampled_from(
    ["host", "db_host", "cache_md5_info", "next_rpc_delay", "new_one"]
)
VALUES = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\x85"),
    max_size=20,
).map(str.strip)


@pytest.mark.parametrize("number", ["-1", "65537", "many"])
def test_fan_out_that_makes_no_sense_is_refused(number):
    odd = DATA.replace(b"<uldl_dir_fanout>1024", b"<uldl_dir_fanout>" + number.encode())
    with pytest.raises(TrustError, match="STO-B001"):
        read_config(odd)


def test_settings_and_daemons_are_read():
    config = read_config(DATA)
    assert config.text("host") == "localhost"
    assert config.text("db_host") == ""
    assert [one.program for one in config.daemons] == [
        "feeder",
        "transitioner",
        "file_deleter",
    ]


@given(st.dictionaries(TAGS, VALUES))
def test_edited_file_says_what_was_wanted_and_keeps_the_rest(settings):
    edited = edit_config(DATA, settings)
    was, now = read_config(DATA), read_config(edited)
    assert now.settings == {**was.settings, **settings}
    assert now.daemons == was.daemons
    assert b"<!-- the operator's own words: <host>elsewhere</host> -->" in edited


def test_one_value_changes_one_line():
    edited = edit_config(DATA, {"host": "here"})
    assert edited == DATA.replace(b"<host>localhost", b"<host>here")


def test_daemon_is_replaced_where_it_stands():
    feeder = read_config(DATA).daemons[0]
    edited = edit_config(DATA, {}, [(feeder, Daemon("feeder --allapps"))])
    assert read_config(edited).daemons[0] == Daemon("feeder --allapps")
    assert read_config(edited).daemons[1:] == read_config(DATA).daemons[1:]


def test_daemon_with_markup_in_its_line_is_added():
    added = Daemon("sh -c 'a < b && c'", "log", "pid", "lock", "vm", disabled=True)
    assert read_config(edit_config(DATA, {}, added=[added])).daemons[-1] == added


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<boinc></boinc>",
        "<boinc><config></boinc>",
        "<x><config></config></x>",
        "\0",
    ],
)
def test_file_that_is_no_configuration_is_refused(text):
    with pytest.raises(TrustError, match="STO-B001"):
        read_config(text.encode())


def test_setting_with_an_attribute_is_not_edited():
    odd = DATA.replace(b"<host>localhost", b'<host of="me">localhost')
    with pytest.raises(UsageError, match="STO-B021"):
        edit_config(odd, {"host": "here"})


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_our_error(data):
    try:
        edit_config(b"<boinc><config>" + data + b"</config></boinc>", {"host": "x"})
    except StoiloError as error:
        assert error.code in {"STO-B001", "STO-B021"}


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("script_validator --app pure", "app", "pure"),
        ("script_validator -app pure", "app", "pure"),
        ("script_validator --app", "app", ""),
        ("", "app", ""),
    ],
)
def test_value_of_an_option_is_found(line, option, value):
    assert Daemon(line).value_of(option) == value
