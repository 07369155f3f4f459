"""The real executor: real root, admission, proof, verifier and jail."""

from __future__ import annotations

import threading
import time

import pytest

from stoilo.audit.format.proof import parse_proof
from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.core.limits import RunLimits
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    PrivateKey,
    render_envelope,
    sign_envelope,
)
from stoilo.core.types import RunStatus
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.workunit import Disposition, HostState, Work, parse_result
from stoilo.executor.volunteer.installed import InstalledExecutor
from stoilo.flavors.manifest import find_flavor
from stoilo.signer.key_files import read_private_key
from stoilo.signer.release_pack import pack_release, read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.gate import Admitted, GateBench

SOURCE = b"def task(kwargs):\n    print('hello')\n    return kwargs['x'] + 1\n"
RAISES = b"def task(kwargs):\n    raise ValueError('no')\n"
SPINS = b"def task(kwargs):\n    while True:\n        pass\n"


@pytest.fixture
def gate(tmp_path):
    now = int(time.time())
    return GateBench(tmp_path / "root", now=now, installed=installed_release())


@pytest.fixture
def executor(tmp_path, gate):
    root = gate.root.root_file.read_bytes()
    (tmp_path / "state").mkdir()
    made = InstalledExecutor(root, tmp_path / "state", HostState(), clock=time.time)
    yield made
    made.close()


def make_work(folder, gate, source=SOURCE, *, arguments=None, app="pure", **changes):
    arguments = skeleton.encode({"x": 41}) if arguments is None else arguments
    statement = gate.statement(
        entry="task",
        task_module=content_digest(source),
        arguments=content_digest(arguments),
        blobs=(),
        **({"flavor": find_flavor("pure").digest} | changes),
    )
    admitted = gate.admit(statement)
    files = {
        "admission": admitted.envelope,
        "proof": admitted.proof,
        "revocations": gate.revocations,
        "task_module": source,
        "arguments": arguments,
        "release": pack_release(read_release(gate.root.directory)),
    }
    folder.mkdir(exist_ok=True)
    paths = []
    for name, data in files.items():
        (folder / name).write_bytes(data)
        paths.append((name, folder / name))
    return Work("task-1_1_0", "task-1_1", app, tuple(paths))


def run(executor, work):
    file = parse_result(executor.execute(work))
    frame = skeleton.decode(file.frame) if file.frame else None
    return file, frame


def test_admitted_task_runs_and_states_what_it_rests_on(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate)
    file, frame = run(executor, work)
    header = file.header
    assert header.disposition is Disposition.RAN
    assert (header.status, header.code) == (RunStatus.OK, "")
    assert (header.result, header.workunit) == ("task-1_1_0", "task-1_1")
    assert header.attempt == 1
    assert header.flavor == find_flavor("pure").digest
    assert header.checkpoint.encode() == parse_proof(work.read("proof")).checkpoint
    assert "seccomp" in " ".join(header.layers)
    assert skeleton.decode(frame["value"]) == 42
    assert file.output == b"hello\n"


def test_task_that_raises_is_a_user_error_with_its_text(tmp_path, gate, executor):
    file, frame = run(executor, make_work(tmp_path / "wu", gate, RAISES))
    assert file.header.status is RunStatus.USER_ERROR
    assert (frame["error_type"], frame["error_text"]) == ("ValueError", "no")


def test_task_past_its_limit_is_killed_and_the_frame_says_so(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate, SPINS, limits=RunLimits(wall_s=1))
    file, frame = run(executor, work)
    assert (file.header.status, file.header.limit) == (RunStatus.KILLED, "wall_s")
    assert frame["status"] == "killed"


def test_items_share_one_run(tmp_path, gate, executor):
    arguments = skeleton.encode([{"x": 1}, {"x": 2}, {}])
    work = make_work(tmp_path / "wu", gate, arguments=arguments, map_items=3)
    file, frame = run(executor, work)
    assert file.header.status is RunStatus.OK
    states = [item["status"] for item in frame["items"]]
    assert states == ["ok", "ok", "user_error"]


def test_swapped_source_is_refused_and_never_parsed(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate)
    (tmp_path / "wu" / "task_module").write_bytes(b"this is not python (")
    header = run(executor, work)[0].header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A020")
    assert not header.checkpoint


def test_clock_beyond_all_calendars_is_an_expired_release(tmp_path, gate):
    root = gate.root.root_file.read_bytes()
    (tmp_path / "state").mkdir()
    executor = InstalledExecutor(
        root, tmp_path / "state", HostState(), clock=lambda: 1e15
    )
    work = make_work(tmp_path / "work", gate)
    assert parse_result(executor.execute(work)).header.code == "STO-K011"
    executor.close()


def test_source_that_is_no_text_is_refused(tmp_path, gate, executor):
    work = make_work(tmp_path / "work", gate, b"def task(kwargs):\n    return '\xff'\n")
    header = parse_result(executor.execute(work)).header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A020")


def test_level_above_the_opt_in_is_not_for_this_host(tmp_path, gate, executor):
    level = installed_release().levels[1]
    work = make_work(
        tmp_path / "wu",
        gate,
        app=level.name,
        level=level.name,
        level_digest=level.digest,
    )
    header = run(executor, work)[0].header
    assert header.disposition is Disposition.NOT_FOR_THIS_HOST
    assert header.code == "STO-A050"


def test_app_of_another_level_is_refused(tmp_path, gate, executor):
    header = run(executor, make_work(tmp_path / "wu", gate, app="numeric"))[0].header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A020")


def test_workunit_of_another_attempt_is_refused(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate)
    other = Work("task-1_2_0", "task-1_2", "pure", work.files)
    assert run(executor, other)[0].header.code == "STO-A020"


@pytest.mark.parametrize("name", ["admission", "proof", "arguments", "release"])
def test_missing_file_is_refused(tmp_path, gate, executor, name):
    work = make_work(tmp_path / "wu", gate)
    files = tuple(row for row in work.files if row[0] != name)
    header = run(executor, Work(work.result, work.workunit, work.app, files))[0].header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A057")


def test_unknown_flavor_is_not_for_this_host(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate, flavor="00" * 32)
    header = run(executor, work)[0].header
    assert header.disposition is Disposition.NOT_FOR_THIS_HOST
    assert header.code == "STO-X013"


@pytest.mark.parametrize("payload", [b"not a statement", b"{" * 9_000])
def test_statement_is_not_read_before_its_signature_holds(
    tmp_path, gate, executor, payload
):
    work = make_work(tmp_path / "wu", gate)
    forged = sign_envelope(
        payload, [("gate-1", PrivateKey.generate())], IN_TOTO_PAYLOAD
    )
    (tmp_path / "wu" / "admission").write_bytes(render_envelope(forged))
    header = run(executor, work)[0].header
    assert (header.disposition, header.code) == (Disposition.REFUSED, "STO-A006")


def test_copy_sent_before_a_refresh_runs_under_the_newer_release(
    tmp_path, gate, executor
):
    older = make_work(tmp_path / "older", gate)
    key = read_private_key(gate.root.directory / "online" / "online.pem")
    refresh_online_metadata(gate.root.directory, key, gate.now + 5 * 24 * 3600)
    newer = make_work(tmp_path / "newer", gate)
    first = (tmp_path / "older" / "release").read_bytes()
    assert first != (tmp_path / "newer" / "release").read_bytes()
    assert run(executor, newer)[0].header.status is RunStatus.OK
    assert run(executor, older)[0].header.status is RunStatus.OK


def start(executor, work):
    """Execute in a thread; return it and the list that gets the error's code."""
    codes = []

    def body():
        with pytest.raises(InternalError) as caught:
            executor.execute(work)
        codes.append(caught.value.code)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, codes


@pytest.mark.parametrize("pause", [0.0, 1.0])
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_unwanted_run_is_killed_at_once(tmp_path, gate, executor, end, pause):
    work = make_work(tmp_path / "wu", gate, SPINS, limits=RunLimits(wall_s=60))
    thread, codes = start(executor, work)
    while work.result not in executor._held:
        time.sleep(0.001)
    time.sleep(pause)
    began = time.monotonic()
    executor.cancel(work.result) if end == "cancel" else executor.close()
    thread.join()
    assert codes == ["STO-S008"]
    assert time.monotonic() - began < 50  # the run itself would take 60 s


def test_cancelling_one_run_leaves_others_alone(tmp_path, gate, executor):
    executor.cancel("task-1_1_0")
    executor.cancel("another")
    assert run(executor, make_work(tmp_path / "wu", gate))[0].header.code == ""


def test_closed_executor_runs_nothing(tmp_path, gate, executor):
    executor.close()
    with pytest.raises(InternalError, match="STO-S008"):
        executor.execute(make_work(tmp_path / "wu", gate))


def test_hostile_release_is_refused(tmp_path, gate, executor):
    work = make_work(tmp_path / "wu", gate)
    (tmp_path / "wu" / "release").write_bytes(b'{"metadata/../x": "AAAA"}')
    assert run(executor, work)[0].header.disposition is Disposition.REFUSED


def witnessed_pair(tmp_path, clock):
    """Return a gate with a witness and an executor whose clock can be set."""
    gate = GateBench(
        tmp_path / "witnessed",
        now=clock.now,
        installed=installed_release(),
        witnessed=True,
    )
    root = gate.root.root_file.read_bytes()
    (tmp_path / "own").mkdir(exist_ok=True)
    made = InstalledExecutor(root, tmp_path / "own", HostState(), clock=clock)
    return gate, made


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def test_clock_set_back_does_not_revive_an_old_admission(tmp_path):
    clock = Clock(int(time.time()))
    gate, executor = witnessed_pair(tmp_path, clock)
    old = make_work(tmp_path / "old", gate, not_after=gate.now + 3600)
    gate.witness_time = gate.now + 7200  # a witness vouches for a later time
    new = make_work(tmp_path / "new", gate, not_after=gate.now + 9000)
    assert run(executor, old)[0].header.disposition is Disposition.RAN  # control
    assert run(executor, new)[0].header.disposition is Disposition.RAN
    executor.close()
    restarted = InstalledExecutor(
        gate.root.root_file.read_bytes(), tmp_path / "own", HostState(), clock=clock
    )
    assert run(restarted, old)[0].header.code == "STO-A040"
    restarted.close()


def test_time_of_a_refused_task_is_not_remembered(tmp_path):
    clock = Clock(int(time.time()))
    gate, executor = witnessed_pair(tmp_path, clock)
    good = make_work(tmp_path / "good", gate)
    gate.witness_time = gate.now + 400 * 86_400  # beyond the epoch: a lying witness
    bad = make_work(tmp_path / "bad", gate)
    assert run(executor, bad)[0].header.code in {"STO-A040", "STO-A043"}
    assert run(executor, good)[0].header.disposition is Disposition.RAN
    executor.close()


def test_admission_without_its_cosignature_is_refused(tmp_path):
    clock = Clock(int(time.time()))
    gate, executor = witnessed_pair(tmp_path, clock)
    work = make_work(tmp_path / "wu", gate)
    proof = dict(work.files)["proof"]
    bare = gate.strip_cosignatures(Admitted(b"", b"", proof.read_bytes()))
    proof.write_bytes(bare.proof)
    assert run(executor, work)[0].header.code == "STO-L013"
    executor.close()
