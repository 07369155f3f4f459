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

    def run(*wanted, uid, libraries="", strace=True, installs=True):
        stand_in("id", f"echo {uid}")
        stand_in("ldconfig", f"echo '{libraries}'")
        end = "" if installs else "; exit 100"
        asked = f"echo \"$@\" >> '{tmp_path}/asked'"
        quiet = f"[ ! -x '{tmp_path}/policy' ] || echo quiet >> '{tmp_path}/asked'"
        stand_in("apt-get", f"{asked}; {quiet}{end}")
        for name in ("chmod", "rm"):
            stand_in(name, f'exec /bin/{name} "$@"')
        stand_in("grep", 'exec /usr/bin/grep "$@"')
        if strace:
            stand_in("strace", "")
        # Without /usr/bin, so that an installed strace is not found.
        return subprocess.run(
            ["/bin/sh", SCRIPT, *wanted],
            env={"PATH": str(tmp_path), "STOILO_POLICY_RC_D": str(tmp_path / "policy")},
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
    assert " install -y" in asked[-1]
    assert asked[-1].endswith(" strace libseccomp2")


def test_command_that_is_wanted_is_installed_as_its_package(machine, tmp_path):
    done = machine("chromium:chromium", "bubblewrap:bwrap", uid=0, libraries=LISTED)
    assert (done.returncode, done.stderr.count("installing")) == (0, 1)
    assert (tmp_path / "asked").read_text().endswith(" chromium bubblewrap\n")


@pytest.mark.parametrize(("file", "asked"), [("there", False), ("missing", True)])
def test_file_that_is_wanted_is_installed_as_its_package(
    machine, tmp_path, file, asked
):
    (tmp_path / "there").touch()
    done = machine(f"libc6-dev:{tmp_path}/{file}", uid=0, libraries=LISTED)
    assert (done.returncode, "libc6-dev" in done.stderr) == (0, asked)


def test_package_that_this_system_lacks_stops_nothing_but_is_named(machine):
    done = machine("chromium:chromium", uid=0, libraries=LISTED, installs=False)
    assert done.returncode == 0
    assert "could not install chromium" in done.stderr


def test_ordinary_user_without_the_browser_goes_on_and_is_told(machine, tmp_path):
    done = machine("chromium:chromium", uid=1000, libraries=LISTED)
    assert (done.returncode, done.stderr.count("chromium")) == (0, 1)
    assert not (tmp_path / "asked").exists()


def test_root_without_libseccomp_and_packages_cannot_go_on(machine):
    assert machine(uid=0, installs=False).returncode == 1


@pytest.mark.parametrize(("wanted", "quiet"), [("boinc-client:boinc", 1), ("x:x", 0)])
def test_client_s_daemon_is_not_started_by_its_package(
    machine, tmp_path, wanted, quiet
):
    machine(wanted, uid=0, libraries=LISTED)
    asked = (tmp_path / "asked").read_text()
    assert wanted.partition(":")[0] in asked
    assert asked.count("quiet") == quiet
    assert not (tmp_path / "policy").exists()


def test_policy_of_the_machine_stays(machine, tmp_path):
    (tmp_path / "policy").write_text("own")
    machine("boinc-client:boinc", uid=0, libraries=LISTED)
    assert (tmp_path / "policy").read_text() == "own"
