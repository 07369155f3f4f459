"""`scripts/system.sh` on machines that lack something, played by stand-in commands."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system.sh"
LISTED = "\tlibseccomp.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libseccomp.so.2"


@pytest.fixture
def machine(tmp_path):
    """Return a runner of the script among stand-ins for a machine's commands."""

    def stand_in(name, body):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(*, uid, libraries="", strace=True):
        stand_in("id", f"echo {uid}")
        stand_in("ldconfig", f"echo '{libraries}'")
        stand_in("apt-get", f"echo \"$@\" >> '{tmp_path}/asked'")
        stand_in("grep", 'exec /usr/bin/grep "$@"')
        if strace:
            stand_in("strace", "")
        # Without /usr/bin, so that an installed strace is not found.
        return subprocess.run(
            ["/bin/sh", SCRIPT],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_nothing_missing_ends_at_once_and_silent(machine, tmp_path):
    done = machine(uid=1000, libraries=LISTED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


def test_ordinary_user_without_libseccomp_is_told_the_package(machine, tmp_path):
    done = machine(uid=1000)
    assert done.returncode == 1
    assert "apt-get install libseccomp2" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_ordinary_user_without_strace_goes_on_and_is_told(machine):
    done = machine(uid=1000, libraries=LISTED, strace=False)
    assert (done.returncode, done.stderr.count("strace")) == (0, 1)


def test_root_installs_what_is_missing(machine, tmp_path):
    done = machine(uid=0, strace=False)
    assert done.returncode == 0
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-1].startswith("install -y")
    assert asked[-1].endswith(" strace libseccomp2")
