import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.installation import (
    LEVEL_ORDER,
    OptIn,
    load_opt_in,
    parse_opt_in,
)
from stoilo.executor.volunteer.optin_file import (
    NO_LIMIT,
    describe_file,
    read_own_file,
    render_opt_in,
    write_opt_in,
)

AMOUNT = st.integers(1, NO_LIMIT)
OPT_INS = st.builds(
    OptIn,
    max_level=st.sampled_from(sorted(LEVEL_ORDER)),
    require_review=st.booleans(),
    require_public_source=st.booleans(),
    topics=st.frozensets(st.text(st.characters(exclude_categories=["Cs"]))),
    limits=st.builds(RunLimits, *[AMOUNT] * 6),
)


@given(OPT_INS)
def test_what_is_written_is_read_back(opt_in: OptIn) -> None:
    read = parse_opt_in(render_opt_in(opt_in))
    if opt_in.limits == RunLimits(*[NO_LIMIT] * 6):
        opt_in = OptIn(
            opt_in.max_level,
            opt_in.require_review,
            opt_in.require_public_source,
            opt_in.topics,
        )
    assert read == opt_in


@pytest.mark.parametrize(("system", "mode"), [(False, 0o600), (True, 0o644)])
def test_file_is_private_or_the_systems(tmp_path: Path, system, mode) -> None:
    path = tmp_path / "deep" / "er" / "optin.toml"
    before = os.umask(0)
    try:
        write_opt_in(path, OptIn(max_level="numeric"), system=system)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert load_opt_in([path]).max_level == "numeric"
    assert [one.name for one in path.parent.iterdir()] == ["optin.toml"]


@pytest.mark.parametrize(
    "mark", ["client_state.xml", "init_data.xml", "boinc_finish_called", "host.json"]
)
def test_place_that_a_server_can_write_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).touch()
    path = tmp_path / "slots" / "0" / "optin.toml"
    with pytest.raises(UsageError, match="STO-A060"):
        write_opt_in(path, OptIn(max_level="gpu"))
    assert not path.exists()
    (tmp_path / mark).unlink()  # the negative control: the mark was the reason
    write_opt_in(path, OptIn(max_level="gpu"))
    (tmp_path / mark).touch()
    assert "STO-A060" in describe_file(path).error


def test_unknown_level_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "optin.toml"
    write_opt_in(path, OptIn())
    with pytest.raises(UsageError, match="STO-A060"):
        write_opt_in(path, OptIn(max_level="everything"))
    assert read_own_file(path).max_level == "pure"


def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="STO-A060"):
        write_opt_in(folder / "optin.toml", OptIn())


def test_link_is_replaced_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "optin.toml"
    target.write_text("kept")
    link.symlink_to(target)
    write_opt_in(link, OptIn(max_level="numeric"))
    assert target.read_text() == "kept"
    assert not link.is_symlink()


def test_description_tells_absent_good_and_bad_apart(tmp_path: Path) -> None:
    path = tmp_path / "optin.toml"
    assert describe_file(path).exists is False
    write_opt_in(path, OptIn(max_level="numeric"))
    good = describe_file(path)
    assert good.opt_in == OptIn(max_level="numeric")
    path.chmod(0o666)
    assert "chmod" in describe_file(path).error
