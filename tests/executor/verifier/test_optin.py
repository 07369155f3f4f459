import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.executor.verifier.installation import (
    LEVEL_ORDER,
    SYSTEM_FILE,
    OptIn,
    ServerPreferences,
    default_files,
    load_opt_in,
    lower_by_server,
    parse_opt_in,
)

LEVELS = st.sampled_from(sorted(LEVEL_ORDER))


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_a_file_only_pure_is_allowed(tmp_path: Path) -> None:
    assert load_opt_in([tmp_path / "none"]) == OptIn(max_level="pure")


def test_file_is_read(tmp_path: Path) -> None:
    text = 'max_level = "numeric"\ntopics = ["health"]\n[limits]\ncpu_s = 9\n'
    own = load_opt_in([write(tmp_path / "o.toml", text)])
    assert own.max_level == "numeric"
    assert own.topics == {"health"}
    assert own.limits is not None
    assert own.limits.cpu_s == 9
    assert own.limits.wall_s == 2**53


@pytest.mark.parametrize(
    "text",
    [
        'max_levle = "pure"',
        'max_level = "everything"',
        'require_review = "no"',
        "[limits]\ncpu_s = 0",
        "[limits]\ncpu = 1",
        "max_level =",
        "#" * 20_000,
    ],
)
def test_a_mistake_in_the_file_stops_everything(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="STO-A060"):
        load_opt_in([write(tmp_path / "o.toml", text)])


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match="STO-A060"):
        load_opt_in([write(tmp_path / "o.toml", "", mode)])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "o.toml", "")
    os.chown(path, 12345, 12345)
    with pytest.raises(UsageError, match="STO-A060"):
        load_opt_in([path])


def test_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "real", 'max_level = "gpu"')
    (tmp_path / "o.toml").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="STO-A060"):
        load_opt_in([tmp_path / "o.toml"])


def test_file_where_a_server_can_write_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path / "projects" / "p" / "o.toml", 'max_level = "gpu"')
    with pytest.raises(UsageError, match="STO-A060"):
        load_opt_in([path], server_writable=[tmp_path / "projects"])


def test_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "optin.toml").mkdir()
    with pytest.raises(UsageError) as caught:
        load_opt_in([tmp_path / "optin.toml"])
    assert caught.value.code == "STO-A060"


def test_user_without_an_account_has_the_system_s_file_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert default_files() == (SYSTEM_FILE,)


def test_environment_does_not_choose_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_files()
    monkeypatch.setenv("HOME", "/elsewhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    assert default_files() == before


def test_two_files_allow_what_both_allow(tmp_path: Path) -> None:
    one = write(tmp_path / "a", 'max_level = "tensor"\n[limits]\ncpu_s = 3')
    two = write(
        tmp_path / "b", 'max_level = "numeric"\nrequire_review = true\ntopics=["x"]'
    )
    both = load_opt_in([one, two])
    assert (both.max_level, both.require_review) == ("numeric", True)
    assert both.limits is not None
    assert both.limits.cpu_s == 3
    assert both.topics == {"x"}


@given(LEVELS, LEVELS | st.text(max_size=5), st.booleans(), st.booleans())
def test_server_preferences_only_lower(
    own: str, asked: str, mine: bool, theirs: bool
) -> None:
    before = OptIn(max_level=own, require_review=mine)
    after = lower_by_server(before, ServerPreferences(asked, theirs, theirs))
    assert LEVEL_ORDER[after.max_level] <= LEVEL_ORDER[own]
    assert after.require_review >= mine
    assert after.require_public_source == theirs


@given(st.binary(max_size=100))
def test_any_bytes_are_an_opt_in_or_our_error(text: bytes) -> None:
    try:
        parse_opt_in(text)
    except UsageError as error:
        code = error.code
        assert code == "STO-A060"
