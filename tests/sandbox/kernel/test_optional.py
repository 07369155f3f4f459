"""Bounds of the control groups around us, in a hierarchy of the test's own."""

import pytest

from stoilo.sandbox.kernel.mechanisms import find_bounds


@pytest.fixture
def hierarchy(tmp_path):
    """Return what makes a group with files, and finds the bounds of one."""
    root = tmp_path / "cgroup"
    root.mkdir()

    def make(group, **files):
        folder = root / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(f"{text}\n")

    def find(line):
        (tmp_path / "own").write_text(line)
        return find_bounds(str(root), str(tmp_path / "own"))

    return make, find


def test_bound_of_the_own_group_is_found(hierarchy):
    make, find = hierarchy
    make("/user/task", memory_max=1 << 30, pids_max="max")
    assert find("0::/user/task\n") == ("cgroup_memory",)


def test_bound_of_a_group_above_counts(hierarchy):
    make, find = hierarchy
    make("/user", pids_max=100)
    make("/user/task", memory_max="max", pids_max="max")
    assert find("0::/user/task\n") == ("cgroup_pids",)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "4:memory:/old\n",
        "0::/\n",
        "0::/gone\n",
        "0::/../..\n",
        "0::relative",
        "\0\udc80".encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
)
def test_group_without_a_bound_or_without_a_group_has_none(hierarchy, line):
    make, find = hierarchy
    make("/", memory_max="max")
    assert find(line) == ()


def test_this_machine_answers():
    assert set(find_bounds()) <= {"cgroup_memory", "cgroup_pids"}
