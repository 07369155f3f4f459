"""Every codec encodes in the jail, under the language layer, what it encodes here."""

import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.core.codec.nodes import from_node
from stoilo.core.codec.skeleton import decode
from stoilo.core.types import RunStatus
from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.driver.downlink import Versions, name_blobs
from stoilo.learn.driver.transport import ask
from stoilo.learn.kernels import array_models
from stoilo.learn.kernels.encoding import arrive
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail
from tests.learn.transport.test_downlink import WAYS, walk
from tests.learn.transport.test_travel import CODECS, softmax_loss


@pytest.fixture(scope="module", params=["numeric", "tensor"])
def jailed(request):
    level = load_level(request.param)
    with Jail(level, TASK_JOB) as jail:

        def run(kernel, given):
            task = capture_task(kernel, given)
            wanted = TaskRequest(
                task.task_module, task.entry, task.arguments, blobs=task.blobs
            )
            outcome = run_task(jail, wanted, level.default_limits())
            assert outcome.status is RunStatus.OK, outcome.error
            return from_node(decode(outcome.value))

        yield run


def arguments(codec):
    rng = np.random.default_rng(0)
    parameters = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}
    order = ask(Order("k", "gradient", Snapshot(3, parameters), 0, 8), codec)
    data = {"x": rng.normal(size=(8, 4)), "y": rng.integers(0, 3, 8)}
    return {
        "parameters": parameters, "buffers": {}, "data": data, "rows": None,
        "settings": dict(order.settings), "version": 3, "function": softmax_loss,
    }  # fmt: skip


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_jailed_frame_is_the_one_made_here(jailed, codec):
    given = arguments(codec)
    here = array_models.gradient(given)["tensors"]
    there = jailed(array_models.gradient, given)["tensors"]
    assert set(there) == set(here)
    for name, frame in here.items():
        np.testing.assert_array_equal(there[name], frame)


def echo(kwargs):
    return arrive(kwargs)["parameters"]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_jailed_kernel_computes_at_the_very_bits_that_the_order_says(jailed, how):
    versions = Versions(how)
    for snapshot in walk(1, 3):
        order = versions.send(Order("k", "gradient", snapshot, 0, 8))
    chain, means = versions.name(order)
    given = {name: sent.frames for name, sent in name_blobs(chain)}
    there = jailed(echo, {**given, "downlink": means})
    for name, array in order.snapshot.parameters.items():
        assert there[name].tobytes() == array.tobytes()
