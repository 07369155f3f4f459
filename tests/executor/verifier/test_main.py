"""The verifier in a slot: real root, admission, proof and jail; BOINC's ways of ending."""

import errno
import io
import subprocess
import sys
import time

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.main import Surroundings, main, run_verifier
from stoilo.executor.verifier.workunit import Disposition
from stoilo.executor.volunteer.installed import InstalledRuntimes
from stoilo.flavors.manifest import find_flavor
from stoilo.sandbox.process.report import JailReport, JailStatus
from stoilo.signer.key_files import read_private_key
from stoilo.signer.release_pack import pack_release, read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.gate import GateBench
from tests.support.slots import BoincData, built_for, installed_runtimes, run_in_slot

SOURCE = b"def task(kwargs):\n    return kwargs['x'] + 1\n"


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gate") / "root"
    return GateBench(directory, now=int(time.time()), installed=installed_release())


@pytest.fixture
def data(tmp_path):
    return BoincData(tmp_path / "boinc")


@pytest.fixture
def built(gate):
    return built_for(gate.root.root_file.read_bytes())


def files_of(gate, **changes):
    """Return the files of an admitted workunit."""
    arguments = skeleton.encode({"x": 41})
    statement = gate.statement(
        entry="task",
        task_module=content_digest(SOURCE),
        arguments=content_digest(arguments),
        blobs=(),
        **({"flavor": find_flavor("pure").digest} | changes),
    )
    admitted = gate.admit(statement)
    return [
        ("admission", admitted.envelope),
        ("proof", admitted.proof),
        ("revocations", gate.revocations),
        ("task_module", SOURCE),
        ("arguments", arguments),
        ("release", pack_release(read_release(gate.root.directory))),
    ]


def run(slot, built, *words, **options):
    return run_in_slot(slot, built, *words, clock=time.time, **options)


def test_task_of_a_slot_is_run_and_finished(data, gate, built):
    slot = data.slot(files_of(gate))
    assert run(slot, built).code == 0
    assert (slot / "boinc_finish_called").read_text() == "0\n"
    result = data.result()
    assert result.header.disposition is Disposition.RAN
    assert skeleton.decode(skeleton.decode(result.frame)["value"]) == 42


def test_nothing_is_kept_in_slot_or_project(data, gate, built):
    slot = data.slot(files_of(gate))
    before = {path.name for path in slot.iterdir()}
    run(slot, built)
    assert {path.name for path in slot.iterdir()} == before | {"boinc_finish_called"}
    assert (data.home / "state").is_dir()


def test_forged_task_ends_in_a_result_that_says_so(data, gate, built):
    forged = dict(files_of(gate)) | {"task_module": b"import os\n"}
    slot = data.slot(tuple(forged.items()))
    assert run(slot, built).code == 0
    header = data.result().header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A020")


def test_explanation_says_what_and_runs_nothing(data, gate, built):
    slot = data.slot(files_of(gate))
    before = {path.name for path in slot.iterdir()}
    ended = run(slot, built, "--explain")
    assert ended.code == 0
    for words in ("function 'task'", "project.example/log", "entry ", "DEVELOPMENT"):
        assert words in ended.out
    assert {path.name for path in slot.iterdir()} == before


def test_explanation_of_a_refusal_says_why(data, gate, built):
    level = installed_release().levels[1]
    files = files_of(gate, level=level.name, level_digest=level.digest)
    ended = run(data.slot(files, app=level.name), built, "--explain")
    assert ended.code == 3
    assert "STO-A050" in ended.out


def test_opt_in_of_the_home_counts_for_this_client(data, gate, built):
    level = installed_release().levels[1]
    files = files_of(gate, level=level.name, level_digest=level.digest)
    slot = data.slot(files, app=level.name)
    data.home.mkdir(mode=0o700)
    (data.home / "optin.toml").write_text('max_level = "numeric"\n')
    (data.home / "optin.toml").chmod(0o600)
    assert run(slot, built, "--explain").code == 0


@pytest.mark.parametrize(
    "wish", ["<max_level>gpu</max_level>", "</project_preferences><max_level>gpu"]
)
def test_preferences_of_the_project_never_widen(data, gate, built, wish):
    level = installed_release().levels[1]
    files = files_of(gate, level=level.name, level_digest=level.digest)
    slot = data.slot(files, app=level.name, preferences=wish)
    assert run(slot, built, "--explain").code == 3


def test_preferences_of_the_project_lower(data, gate, built):
    wish = "<require_review>1</require_review>"
    ended = run(data.slot(files_of(gate), preferences=wish), built, "--explain")
    assert (ended.code, "STO-A050" in ended.out) == (3, True)


def test_release_build_refuses_a_development_root(data, gate):
    strict = built_for(gate.root.root_file.read_bytes(), development=False)
    run(data.slot(files_of(gate)), strict)
    assert data.result().header.code == "STO-K015"


def test_home_open_to_others_is_not_for_this_host(data, gate, built):
    slot = data.slot(files_of(gate))
    data.home.mkdir(mode=0o755)
    data.home.chmod(0o755)
    ended = run(slot, built)
    header = data.result().header
    assert ended.code == 0
    assert header.disposition is Disposition.NOT_FOR_THIS_HOST
    assert header.code == "STO-F037"


def test_trouble_of_this_machine_asks_boinc_to_try_again(data, gate, built):
    slot = data.slot(files_of(gate))
    run(slot, built)
    memory = next((data.home / "state").glob("*/memory.json"))
    memory.write_bytes(b"damaged")
    other = data.slot(files_of(gate), number=1, workunit="task-2_1")
    ended = run(other, built)
    assert ended.code == 0
    assert "STO-F040" in (other / "boinc_temporary_exit").read_text()
    assert not (other / "boinc_finish_called").exists()


class FullStream(io.StringIO):
    """A stream to a full disk."""

    def write(self, _text):
        raise OSError(errno.ENOSPC, "no space")


def test_full_disk_under_stderr_takes_no_result_away(data, gate):
    slot = data.slot(files_of(gate))
    data.home.mkdir(mode=0o755)
    around = Surroundings(
        built_for(gate.root.root_file.read_bytes()),
        slot,
        runtimes=installed_runtimes,
        err=FullStream(),
    )
    assert run_verifier([], around) == 0
    assert data.result().header.code == "STO-F037"


def test_nothing_of_an_error_commands_a_terminal(data, gate, built):
    slot = data.slot(files_of(gate))
    own = data.directory / "optin.toml"
    own.write_text('"\\u001b]0;evil\\u0007" = 1\n')
    ended = run(slot, built, opt_in_files=(own,))
    assert "STO-A060" in ended.err
    assert ended.err.removesuffix("\n").isprintable()


def test_newest_release_that_cannot_be_read_is_this_machines_trouble(data, gate, built):
    run(data.slot(files_of(gate)), built)
    old = files_of(gate)
    key = read_private_key(gate.root.directory / "online" / "online.pem")
    refresh_online_metadata(gate.root.directory, key, gate.now + 60)
    run(data.slot(files_of(gate), number=1), built)
    newest = next((data.home / "state").glob("*/release.pack"))
    newest.unlink()
    newest.mkdir()
    slot = data.slot(old, number=2)
    assert run(slot, built).code == 0
    assert "STO-X008" in (slot / "boinc_temporary_exit").read_text()


def test_below_the_floor_all_work_is_refused_with_please_update(data, gate, built):
    run(data.slot(files_of(gate)), built)
    memory = next((data.home / "state").glob("*/memory.json"))
    memory.write_bytes(memory.read_bytes().replace(b'"verifier":1', b'"verifier":9'))
    slot = data.slot(files_of(gate), number=1, workunit="task-1_1")
    ended = run(slot, built, "--explain")
    assert (ended.code, "please update" in ended.out) == (3, True)


@pytest.mark.parametrize("word", ["--root=x", "--max-level", "x", "--explain=1"])
def test_no_other_word_is_known(data, built, word):
    with pytest.raises(UsageError) as caught:
        run(data.slot([]), built, word)
    assert caught.value.code == "STO-U003"


def test_directory_that_is_no_slot_is_refused(tmp_path, built):
    with pytest.raises(TrustError) as caught:
        run(tmp_path, built)
    assert caught.value.code == "STO-F038"


def test_version_is_said(data, built):
    assert run(data.slot([]), built, "--version").out == "stoilo-verifier 0.2.0 (1)\n"


def test_unfrozen_program_knows_no_root(capsys):
    assert main() == 4
    assert "STO-F035" in capsys.readouterr().err


FROZEN = """
import os, sys
sys.frozen = True
sys.argv = ["stoilo-verifier", *{words!r}]
from stoilo.executor.verifier.main import Surroundings, main, run_verifier
main()
"""


@pytest.mark.parametrize("words", [[], ["--version"], ["--root=x"], ["--explain"]])
def test_frozen_program_without_its_built_file_refuses_everything(tmp_path, words):
    done = subprocess.run(
        [sys.executable, "-c", FROZEN.format(words=words)],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "STO-F035" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {"STOILO_ROOT": "/evil", "STOILO_MAX_LEVEL": "gpu"},
        {"XDG_DATA_HOME": "/evil", "XDG_CONFIG_HOME": "/evil", "BOINC_DIR": "/evil"},
    ],
)
def test_environment_chooses_neither_home_nor_level(data, gate, built, variables):
    level = installed_release().levels[1]
    files = files_of(gate, level=level.name, level_digest=level.digest)
    slot = data.slot(files, app=level.name)
    out = io.StringIO()
    around = Surroundings(
        built, slot, variables, runtimes=installed_runtimes, out=out, err=out
    )
    assert run_verifier(["--explain"], around) == 3
    assert "STO-A050" in out.getvalue()
    assert data.home.is_dir()


class BreakingJail:
    """A jail in which something outside kills every run."""

    def __init__(self, code):
        self.code = code

    def run(self, *_arguments, **_named):
        return JailReport(JailStatus.CRASHED, code=self.code, detail="killed")

    def close(self):
        pass


def runs_that_break(code):
    return lambda *_: InstalledRuntimes(lambda _: BreakingJail(code))


def test_run_that_breaks_again_and_again_has_failed_here(data, gate, built):
    slot = data.slot(files_of(gate))
    again = runs_that_break("STO-S005")
    codes = [run(slot, built, runtimes=again).code for _ in range(3)]
    assert codes == [0, 0, 195]
    assert not (slot / "boinc_temporary_exit").exists()


def test_control_other_trouble_asks_again_every_time(data, gate, built):
    slot = data.slot(files_of(gate))
    again = runs_that_break("STO-S008")
    assert [run(slot, built, runtimes=again).code for _ in range(4)] == [0] * 4
    assert (slot / "boinc_temporary_exit").exists()
