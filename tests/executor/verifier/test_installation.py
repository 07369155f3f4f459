"""Where the home is: decided by where the process stands, never open to others."""

import os
import stat

import pytest

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.installation import find_home, is_slot, open_home


def slot_in(data, name="0"):
    (data / "slots" / name).mkdir(parents=True)
    return data / "slots" / name


def refusal(call, *arguments):
    with pytest.raises(TrustError) as caught:
        call(*arguments)
    return caught.value.code


def test_slot_has_its_home_beside_the_projects(tmp_path):
    home = find_home(slot_in(tmp_path), {"HOME": "/elsewhere"})
    assert home.path == tmp_path.resolve() / "stoilo"
    assert tmp_path.resolve() / "projects" in home.server_writable


def test_link_to_a_slot_counts_as_the_slot(tmp_path):
    (tmp_path / "here").symlink_to(slot_in(tmp_path))
    assert find_home(tmp_path / "here", {}).path == tmp_path.resolve() / "stoilo"


@pytest.mark.parametrize("name", ["x", "1a", "-1", "٣"])
def test_directory_of_another_name_is_no_slot(tmp_path, name):
    assert not is_slot(slot_in(tmp_path, name))


def test_outside_of_a_slot_the_home_is_the_users(tmp_path):
    home = find_home(tmp_path, {"HOME": str(tmp_path)})
    assert home.path == tmp_path / ".local" / "share" / "stoilo"
    assert home.server_writable == ()


@pytest.mark.parametrize(
    "environment", [{}, {"HOME": "relative"}, {"HOME": "/nowhere"}]
)
def test_home_that_says_nothing_is_refused(tmp_path, environment):
    assert refusal(find_home, tmp_path, environment) == "STO-F037"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_home_is_refused(tmp_path):
    os.chown(tmp_path, 12345, -1)
    assert refusal(find_home, tmp_path, {"HOME": str(tmp_path)}) == "STO-F037"


def test_opened_home_is_made_closed_to_others(tmp_path):
    home = open_home(find_home(slot_in(tmp_path), {}))
    for directory in (home.path, home.flavors, home.verifiers):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_home_open_to_others_is_refused(tmp_path):
    home = open_home(find_home(slot_in(tmp_path), {}))
    home.path.chmod(0o750)
    assert refusal(open_home, home) == "STO-F037"


@pytest.mark.parametrize("name", [".", "flavors"])
def test_linked_home_is_refused(tmp_path, name):
    home = find_home(slot_in(tmp_path), {})
    (tmp_path / "other").mkdir(mode=0o700)
    (home.path / name).parent.mkdir(mode=0o700, exist_ok=True)
    (home.path if name == "." else home.path / name).symlink_to(tmp_path / "other")
    assert refusal(open_home, home) == "STO-F037"


def test_projects_have_states_of_their_own(tmp_path):
    home = find_home(slot_in(tmp_path), {})
    assert home.state("a.example") != home.state("b.example")


@pytest.mark.parametrize("name", [".local", ".local/share"])
def test_users_directory_that_others_write_is_refused(tmp_path, name):
    (tmp_path / ".local" / "share").mkdir(parents=True)
    (tmp_path / name).chmod(0o775)
    home = find_home(tmp_path, {"HOME": str(tmp_path)})
    assert refusal(open_home, home) == "STO-F037"
    (tmp_path / name).chmod(0o755)
    assert open_home(home).path.is_dir()
