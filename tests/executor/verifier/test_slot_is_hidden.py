"""From inside the jail a slot, its project and what the client wrote do not exist.

``init_data.xml`` holds the volunteer's account key. The program below is native code as far
as the jail is concerned; without the jail it finds everything.
"""

import subprocess
import sys

import pytest

from tests.support.boincslot import describe_client
from tests.support.slots import BoincData

HUNT = """
import os, sys
data = {data!r}
slot, project = data + "/slots/0", data + "/projects/127.0.0.1_stoilo"
near = [".", "init_data.xml", "../..", "../../projects"]
parents = [f"/proc/{{pid}}/{{name}}" for pid in ("self", os.getppid(), os.getpid())
    for name in ("cwd", "environ", "root" + slot)]
far = [data, slot, project, slot + "/init_data.xml", project + "/secret"]
found = []
def read(path):
    with open(path, "rb") as file:
        file.read(1)
for path in (*near, *parents, *far):
    for look in (os.listdir, read, os.stat, os.open, os.readlink, os.chdir):
        try:
            look(path, os.O_RDONLY) if look is os.open else look(path)
        except OSError:
            continue
        found.append(f"{{look.__name__}} {{path}}")
words = " ".join([*sys.argv, *sys.path, *os.environ.values()])
if data in words:
    found.append("words")
print(*found, sep="\\n")
"""
# Every denied call fails instead of ending the program: all of them are tried.
IN_JAIL = """
import sys
from pathlib import Path
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.run import probe_source
from stoilo.sandbox.kernel.filters import Denied
source = Path(sys.argv[1]).read_text()
outcome = probe_source(source, load_level("pure"), denied=Denied.ERRNO)
print(outcome.status.value, outcome.error, outcome.output)
"""


@pytest.fixture
def hunt(tmp_path):
    data = BoincData(tmp_path / "boinc")
    slot = data.slot([("secret", b"key")], client=describe_client())
    program = tmp_path / "hunt.py"
    program.write_text(HUNT.format(data=str(data.directory)))

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command, str(program)],
            cwd=slot,
            env={"BOINC_SLOT": str(slot), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    return run


def test_program_in_the_jail_finds_nothing(hunt):
    assert hunt("-c", IN_JAIL).split() == ["ok"]


def test_program_without_the_jail_finds_everything(hunt):
    found = hunt()
    for path in ("init_data.xml", "/slots/0", "/proc/self/cwd", "words"):
        assert path in found
