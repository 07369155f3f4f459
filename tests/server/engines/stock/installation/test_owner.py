"""Root installs into a project whose names are all its owner's to choose."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from stoilo.core.errors import InternalError, UsageError
from stoilo.server.engines.stock.app_versions import VersionFolder
from stoilo.server.engines.stock.installation.checks import examine
from stoilo.server.engines.stock.installation.facts import read_facts
from stoilo.server.engines.stock.installation.install import Installer
from stoilo.server.engines.stock.installation.owner import (
    INTERPRETERS,
    Owner,
    acting_as,
    find_interpreter,
    try_interpreter,
)
from stoilo.server.engines.stock.installation.plan import (
    AddVersion,
    RunTool,
    SetMode,
    WriteFile,
)
from stoilo.server.engines.stock.installation.snapshot import read_snapshot
from stoilo.server.engines.stock.script_server import ENTRY_POINTS, entry_point_text
from tests.support.openpython import is_open
from tests.support.stockproject import StockTree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
NOBODY = 65534
HIS = Owner(NOBODY, NOBODY, (NOBODY,))
OPEN = next((one for one in INTERPRETERS if is_open(Path(one).resolve())), "")
needs_open = pytest.mark.skipif(not OPEN, reason="every python lies in a closed folder")


@pytest.fixture
def folder():
    """A directory that others may enter, as `tmp_path` is not."""
    made = Path(tempfile.mkdtemp(prefix="st-owner-"))
    made.chmod(0o755)
    if any(not one.stat().st_mode & 0o001 for one in made.parents):
        made.rmdir()
        pytest.skip("others may not enter the folder for temporary files")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def tree(folder):
    made = StockTree(folder)
    for path in [made.root, *made.root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    return made


@pytest.fixture
def victim(folder):
    """A directory of root's, beside the project."""
    made = folder / "etc"
    made.mkdir(mode=0o755)
    (made / "shadow").write_text("root's own </boinc>\n")
    (made / "shadow").chmod(0o600)
    return made


def state(path):
    found = path.stat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


def put_link(tree, name, target):
    place = tree.root / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def test_directory_that_a_link_leads_to_keeps_owner_and_mode(tree, victim):
    put_link(tree, "upload", victim)
    with pytest.raises(InternalError, match="STO-B026"):
        Installer(tree.root).do(SetMode("upload", 0o2775, "a test"))
    assert state(victim) == (0, 0o755)


def test_directory_of_the_project_gets_its_mode(tree):
    Installer(tree.root).do(SetMode("upload", 0o2775, "a test"))
    assert state(tree.root / "upload") == (NOBODY, 0o2775)


@pytest.mark.parametrize(("mode", "refused"), [(0o2771, False), (0o2751, True)])
def test_folder_of_the_web_server_stays_as_it_is_where_the_group_may_write(
    tree, mode, refused
):
    (tree.root / "upload" / "151").mkdir()
    os.chown(tree.root / "upload" / "151", NOBODY - 1, NOBODY)
    (tree.root / "upload" / "151").chmod(mode)
    (tree.root / "upload").chmod(0o2770)  # as BOINC's upgrade leaves it
    with pytest.raises(InternalError, match="STO-B026") if refused else nullcontext():
        Installer(tree.root).do(SetMode("upload", 0o2775, "a test"))
    assert state(tree.root / "upload") == (NOBODY, 0o2775)
    assert state(tree.root / "upload" / "151") == (NOBODY - 1, mode)


def test_file_behind_a_linked_directory_is_not_written(tree, victim):
    put_link(tree, "html/project", victim)
    with pytest.raises(InternalError, match="STO-B026"):
        Installer(tree.root).do(WriteFile("html/project/shadow", b"x", 0o644, "a test"))
    assert (victim / "shadow").read_text() == "root's own </boinc>\n"


def test_what_root_writes_belongs_to_the_owner(tree):
    Installer(tree.root).do(WriteFile("a/b", b"x", 0o640, "a test"))
    assert state(tree.root / "a/b") == (NOBODY, 0o640)
    assert state(tree.root / "a") == (NOBODY, 0o755)


def test_file_that_only_root_may_read_is_not_read_for_the_project(tree, victim):
    put_link(tree, "project.xml", victim / "shadow")
    with pytest.raises(UsageError, match="STO-B001"):
        read_facts(tree.project())


def test_release_that_only_root_may_read_is_installed(tree, victim):
    program = tree.offer.programs[0]
    (victim / "launcher").write_bytes(program.launcher.source)
    (victim / "launcher").chmod(0o600)
    closed = replace(program.launcher, source=victim / "launcher")
    program = replace(program, launcher=closed)
    Installer(tree.root).do(
        AddVersion(VersionFolder("pure", 100, program.platform, program))
    )
    (launcher,) = tree.root.glob("apps/pure/1.00/*/stoilo_launcher_*[!g]")
    assert state(launcher) == (NOBODY, 0o755)


def fail_as_the_owner():
    with acting_as(HIS):
        raise ValueError(str(os.geteuid()))


def test_rights_come_back_after_a_failure():
    before = os.getgroups(), os.getegid()
    with pytest.raises(ValueError, match=str(NOBODY)):
        fail_as_the_owner()
    assert (os.geteuid(), (os.getgroups(), os.getegid())) == (0, before)


def test_link_in_a_project_of_root_s_own_is_not_followed(folder, victim):
    tree = StockTree(folder)
    put_link(tree, "upload", victim)
    with pytest.raises(InternalError, match="STO-B026"):
        Installer(tree.root).do(SetMode("upload", 0o2775, "a test"))
    assert state(victim) == (0, 0o755)


def test_directory_of_the_web_server_s_is_named_with_what_to_do(tree):
    os.chown(tree.root / "upload", 1, 1)
    with pytest.raises(InternalError, match="as root chown"):
        Installer(tree.root).do(SetMode("upload", 0o2775, "a test"))


@pytest.fixture
def closed_python(folder):
    """An interpreter below a home that nobody else may enter."""
    (folder / "home").mkdir(mode=0o700)
    made = folder / "home" / "python3"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    made.chmod(0o755)
    return str(made)


@needs_open
def test_interpreter_that_the_owner_may_not_enter_is_not_chosen(closed_python):
    assert try_interpreter([closed_python, "-IS"], Owner(0, 0, (0,))) == ""
    assert find_interpreter(HIS, (closed_python, OPEN)) == OPEN
    with pytest.raises(UsageError, match=r"Permission denied.*STO-B021"):
        find_interpreter(HIS, (closed_python,))


@needs_open
def test_script_whose_interpreter_the_owner_may_not_enter_is_named(tree, closed_python):
    def named():
        seen = read_snapshot(tree.project(), web=False, url=tree.url)
        return [one for one in examine(seen) if "bin/stoilo_compare" in one.text]

    for name in ENTRY_POINTS:
        path = tree.write(f"bin/{name}", entry_point_text(find_interpreter(HIS)))
        path.chmod(0o755)
    assert named() == []
    tree.write("bin/stoilo_compare", f"#!{closed_python} -IS\n")
    assert [one.grave for one in named()] == [True]


def test_program_of_the_project_gets_none_of_root_s_environment(tree, monkeypatch):
    monkeypatch.setenv("STOILO_SERVER_DATABASE", "mysql://u:secret@h/db")
    monkeypatch.setenv("HOME", "/root")
    tree.write("bin/xadd", "#!/bin/sh\nenv | grep -E '^(BOINC|STOILO|HOME)'\nexit 1\n")
    (tree.root / "bin" / "xadd").chmod(0o755)
    with pytest.raises(InternalError, match="BOINC_PROJECT_DIR") as caught:
        Installer(tree.root).do(RunTool(("bin/xadd",), "a test"))
    said = str(caught.value)
    assert "secret" not in said
    assert "HOME=/root" not in said
