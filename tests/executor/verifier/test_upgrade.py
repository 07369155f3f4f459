"""Newer verifiers run older tasks inside their window; older ones name what is too new."""

import dataclasses

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.frozen_tree import parse_tree
from stoilo.core.statement import render_statement
from stoilo.executor.verifier.admission import admission_leaf
from stoilo.executor.verifier.host_verifier import MEMORY_FILE, HostMemory
from stoilo.executor.verifier.installation import parse_built
from stoilo.executor.verifier.targets import PartFile, ProjectFile, read_target
from stoilo.executor.verifier.workunit import HostState, parse_result_header
from tests.support.gate import FLAVOR, verify_bundle

HOST = HostState(flavors=frozenset({FLAVOR}))


def upgraded(gate):
    """Return the release as a verifier sees it that has a newer level and language."""
    old = gate.root.trust
    newest = msgspec.structs.replace(old.levels[0], digest=content_digest(b"newer"))
    return dataclasses.replace(
        old,
        levels=(newest, *old.levels),
        installed_language=content_digest(b"a newer language layer"),
    )


def test_newer_verifier_runs_an_older_task_under_its_own_level(gate):
    bundle = gate.bundle(gate.admit(gate.statement()))
    task = verify_bundle(bundle, upgraded(gate), HOST, gate.now)
    assert task.level.digest == gate.installed.levels[0].digest


def test_newest_level_is_what_a_new_task_gets(gate):
    trust = upgraded(gate)
    statement = gate.statement(level_digest=trust.levels[0].digest)
    task = verify_bundle(gate.bundle(gate.admit(statement)), trust, HOST, gate.now)
    assert task.level.digest == content_digest(b"newer")


def test_older_task_outside_of_its_window_is_refused(gate):
    bundle = gate.bundle(gate.admit(gate.statement()))
    with pytest.raises(StoiloError) as caught:
        verify_bundle(bundle, upgraded(gate), HOST, gate.now + 15 * 24 * 3600)
    assert caught.value.code == "STO-A040"


def test_older_language_that_is_no_longer_run_is_refused(gate):
    trust = dataclasses.replace(upgraded(gate), languages=frozenset())
    with pytest.raises(StoiloError) as caught:
        verify_bundle(gate.bundle(gate.admit(gate.statement())), trust, HOST, gate.now)
    assert caught.value.code == "STO-A032"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"codec": 2}, "STO-A032"),
        ({"python": "3.12"}, "STO-A032"),
        ({"level": "quantum"}, "STO-A020"),
        ({"level_digest": content_digest(b"of tomorrow")}, "STO-A032"),
        ({"language_digest": content_digest(b"of tomorrow")}, "STO-A032"),
        ({"flavor": content_digest(b"of tomorrow")}, "STO-X013"),
    ],
)
def test_task_of_tomorrow_is_refused_by_its_own_code(gate, changes, code):
    bundle = gate.bundle(gate.admit(gate.statement(**changes)))
    with pytest.raises(StoiloError) as caught:
        verify_bundle(bundle, gate.root.trust, HOST, gate.now)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"task-admission:v1", b"task-admission:v2", "STO-A004"),
        (b'"critical":[]', b'"critical":["gpu-attestation"]', "STO-A032"),
    ],
)
def test_statement_of_tomorrow_is_refused_by_its_own_code(gate, old, new, code):
    statement = gate.statement()
    payload = render_statement(statement).replace(old, new)
    assert new in payload
    proof = gate.log(admission_leaf(statement, payload))
    admitted = dataclasses.replace(
        gate.admit(statement), envelope=gate.sign(payload), proof=proof
    )
    with pytest.raises(StoiloError) as caught:
        verify_bundle(gate.bundle(admitted), gate.root.trust, HOST, gate.now)
    assert caught.value.code == code


def memory_of(data, tmp_path):
    (tmp_path / MEMORY_FILE).write_bytes(data)
    return HostMemory(tmp_path / MEMORY_FILE)


@pytest.mark.parametrize(
    ("parse", "code"),
    [
        (lambda _: parse_tree(b"stoilo-tree/2 pure x86_64-linux\n"), "STO-F006"),
        (lambda _: parse_built(b'{"format":"stoilo-built/2"}'), "STO-F035"),
        (lambda path: memory_of(b'{"format":"stoilo-memory/2"}', path), "STO-F040"),
        (lambda _: parse_result_header(b'{"format":"stoilo-result/3"}\n'), "STO-X020"),
        (
            lambda _: read_target(b'{"format":"stoilo-part/2"}', PartFile, "part"),
            "STO-K013",
        ),
        (
            lambda _: read_target(
                b'{"origin":"o","levels":{},"languages":[],"new":1}', ProjectFile, "p"
            ),
            "STO-K013",
        ),
    ],
)
def test_file_of_tomorrow_is_refused_by_its_own_code(tmp_path, parse, code):
    with pytest.raises(StoiloError) as caught:
        parse(tmp_path)
    assert caught.value.code == code
