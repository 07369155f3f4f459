"""A real project with real witness processes: who must be alive for work to be admitted."""

import contextlib

import pytest

import stoilo
from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.proof import parse_proof
from stoilo.audit.read.search import prove_leaf
from stoilo.cli.demo.auditor import read_log_policy
from stoilo.testing.deployment import Deployment
from stoilo.testing.witness import WitnessProcess, write_log_policy


@pytest.fixture
def project(tmp_path):
    """Start a project with two witnesses, `threshold` of which must cosign."""
    with contextlib.ExitStack() as stack:

        def begin(threshold):
            deployment = Deployment(tmp_path / "data")
            vkey = deployment.log_key()
            witnesses = [
                stack.enter_context(
                    WitnessProcess(tmp_path / name, f"witness.test/{name}", [vkey])
                )
                for name in ("w1", "w2")
            ]
            deployment.log_policy = write_log_policy(
                tmp_path / "policy.txt", witnesses, threshold
            )
            stack.enter_context(deployment)
            return deployment, witnesses

        yield begin


def double(kwargs):
    return kwargs["x"] * 2


def submit(deployment, x):
    with stoilo.connect_sync(deployment.data / "connection.json") as conn:
        return conn.create_task(func=double, kwargs={"x": x}).submit().task_id


def state(deployment, task_id):
    with stoilo.connect_sync(deployment.data / "connection.json") as conn:
        return conn.restore_task(task_id).status()


def witnesses_of(deployment, task_id):
    proof = parse_proof(prove_leaf(deployment.data, task_id).proof)
    policy = read_log_policy(deployment.data / "keys")
    return open_checkpoint(proof.checkpoint, policy).witnesses


def wait_for(deployment, task_id, wanted, wait_until):
    return wait_until(
        lambda: (now := state(deployment, task_id)).state == wanted and now, 90
    )


def test_one_of_two_is_enough_when_the_policy_says_one(project, wait_until):
    deployment, (first, second) = project(1)
    first.kill()
    task_id = submit(deployment, 21)
    wait_for(deployment, task_id, "running", wait_until)
    assert witnesses_of(deployment, task_id) == {"w2"}
    first.start()
    second.kill()
    later = submit(deployment, 22)
    wait_for(deployment, later, "running", wait_until)
    assert witnesses_of(deployment, later) == {"w1"}


def test_nothing_is_admitted_while_a_witness_of_the_quorum_is_dead(project, wait_until):
    deployment, (first, _) = project(2)
    before = submit(deployment, 1)
    wait_for(deployment, before, "running", wait_until)
    first.kill()
    task_id = submit(deployment, 21)
    waiting = wait_until(
        lambda: "w1" in (now := state(deployment, task_id)).explanation and now, 90
    )
    assert waiting.state == "admitting"
    first.start()
    wait_for(deployment, task_id, "running", wait_until)
    assert witnesses_of(deployment, task_id) == {"w1", "w2"}


def test_log_that_began_without_witnesses_goes_on_with_them(project, wait_until):
    deployment, _ = project(2)
    policy, deployment.log_policy = deployment.log_policy, None
    deployment.stop()
    deployment.start()
    alone = submit(deployment, 1)
    wait_for(deployment, alone, "running", wait_until)
    assert state(deployment, alone).attempt == 1
    assert witnesses_of(deployment, alone) == frozenset()
    deployment.log_policy = policy
    deployment.stop()
    deployment.start()
    task_id = submit(deployment, 2)
    wait_for(deployment, task_id, "running", wait_until)
    assert witnesses_of(deployment, task_id) == {"w1", "w2"}
    # Volunteers would refuse what was sent out before: it is admitted anew.
    wait_until(lambda: state(deployment, alone).attempt == 2, 240)
    wait_for(deployment, alone, "running", wait_until)
    assert witnesses_of(deployment, alone) == {"w1", "w2"}
