"""Where verifiers are kept: beside the slots, else below HOME; private, or not at all."""

import os
import shutil

import pytest

from stoilo.executor.verifier.installation import find_home


@pytest.fixture
def elsewhere(slot, tmp_path):
    """Return the same launcher in a directory that is no slot."""
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(slot.project / "stoilo-verifier.tar", folder)
    return {"cwd": folder, "env": {"HOME": str(tmp_path)}}


def test_slot_keeps_them_beside_the_slots(slot):
    assert slot.starts()
    assert slot.place == find_home(slot.path, {}).verifiers
    assert [path.name for path in slot.place.parent.iterdir()] == ["verifier"]


def test_elsewhere_they_are_kept_below_home(slot, elsewhere, tmp_path):
    assert slot.starts(**elsewhere)
    place = find_home(elsewhere["cwd"], elsewhere["env"]).verifiers
    assert sorted(path.name for path in place.iterdir()) == [slot.verifier.tree, "lock"]
    assert place.is_relative_to(tmp_path / ".local/share/stoilo")


@pytest.mark.parametrize("name", ["slots/x", "slots/0x", "slots/0/1", "slot/0", "0"])
def test_what_only_resembles_a_slot_is_none(slot, elsewhere, tmp_path, name):
    folder = tmp_path / "other" / name
    shutil.copytree(elsewhere["cwd"], folder)
    assert slot.starts(cwd=folder, env=elsewhere["env"])
    assert not list((tmp_path / "other").rglob("stoilo"))


@pytest.mark.parametrize("home", ["", "relative", "/nowhere", "/dev/null"])
def test_without_a_slot_and_a_home_it_refuses(slot, elsewhere, home):
    assert slot.refusal(**elsewhere | {"env": {"HOME": home}}) == (1, "STO-F037")


def test_environment_does_not_move_them_out_of_a_slots_data(slot, tmp_path):
    assert slot.starts(env={"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)})
    assert not (tmp_path / ".local").exists()
    assert slot.tree.exists()


def test_slot_is_where_it_really_lies_not_as_it_was_named(slot, tmp_path):
    (tmp_path / "slots").mkdir()
    (tmp_path / "slots/0").symlink_to(slot.path)
    assert slot.starts(cwd=tmp_path / "slots/0")
    assert slot.tree.exists()


@pytest.mark.parametrize("name", ["stoilo", "stoilo/verifier"])
def test_directory_open_to_others_refuses(slot, name):
    assert slot.starts()
    (slot.data / name).chmod(0o750)
    assert slot.refusal() == (1, "STO-F037")


@pytest.mark.parametrize("name", ["stoilo", "stoilo/verifier"])
def test_directory_through_a_link_refuses(slot, name):
    assert slot.starts()
    real = (slot.data / name).rename(slot.data / "real")
    (slot.data / name).symlink_to(real)
    assert slot.refusal() == (1, "STO-F037")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
@pytest.mark.parametrize("name", ["stoilo", "stoilo/verifier"])
def test_somebody_elses_directory_refuses(slot, name):
    assert slot.starts()
    os.chown(slot.data / name, 65534, 65534)
    assert slot.refusal() == (1, "STO-F037")


def test_file_in_its_place_refuses(slot):
    (slot.data / "stoilo").write_text("")
    assert slot.refusal() == (1, "STO-F037")


def test_group_that_directories_inherit_does_not_matter(slot):
    slot.data.chmod(0o2770)  # as Debian's boinc-client has it
    assert slot.starts()


def test_working_directory_that_is_gone_is_told(slot, tmp_path):
    (tmp_path / "gone").mkdir()
    here = os.open(tmp_path / "gone", os.O_RDONLY)
    (tmp_path / "gone").rmdir()
    found = slot.refusal(cwd=None, preexec_fn=lambda: os.fchdir(here))
    os.close(here)
    assert found == (1, "STO-F037")


def go_deep(root):
    """Step down from `root` until a path has little room left."""
    os.chdir(root)
    room = 4020 - len(str(root))
    for name in [*["d" * 200] * (room // 201), "d" * (room % 201 + 1), "slots", "0"]:
        os.mkdir(name)  # noqa: PTH102 - relative to where we stand
        os.chdir(name)


def test_path_that_grows_too_long_is_told(slot, tmp_path):
    found = slot.refusal(cwd=tmp_path, preexec_fn=lambda: go_deep(tmp_path))
    assert found == (1, "STO-F037")
