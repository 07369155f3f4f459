"""How a gradient travels, against JSON lists (the thesis's way), ResNet18-sized.

Ours is a volunteer's and the server's part together: the kernel's encoding, the wire's, its
strict decoding, the codec's, and acceptance. JSON lists are written, read and checked for
the same. Then the same encodings in the jail, where they run: a task makes a gradient (so
that none has to be sent to it) and answers with it, from order to accepted reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.codec import LAYERS, Shapes, check_gradient, make_gradient
from bench.rows import Row, interleaved_medians, seconds_once
from stoilo.client.capture import capture_task
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.codec.skeleton import decode, encode
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Form, Tensors
from stoilo.learn.driver.acceptance import Expectation, check_reply
from stoilo.learn.driver.codecs import Compressed, Raw, Ternary, Transport
from stoilo.learn.driver.transport import ask, receive
from stoilo.learn.kernels.encoding import pack
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail

JAILED = "gradient, drawn and encoded in the jail, accepted"
CODECS: dict[str, tuple[Transport, float | None, float]] = {
    "raw": (Raw(), 100.0, 5.8),
    "compressed": (Compressed(), None, 6.0),
    "ternary": (Ternary(), None, 80.0),
}
"""Codec, how many times as fast as JSON lists it must be, how many times smaller."""


def draw_and_answer(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Answer as a gradient kernel does, with numbers drawn in the task."""
    chooser = np.random.Generator(np.random.PCG64(1))
    tensors = {
        name: (chooser.standard_normal(tuple(shape)) * 1e-3).astype("float32")
        for name, shape in kwargs["shapes"].items()
    }
    return answer(kwargs, tensors)


def answer(kwargs: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """Return what every kernel returns."""
    return {
        "version": 0,
        "samples": 1,
        "loss_sum": 1.0,
        "tensors": pack(kwargs, tensors),
        "buffers": {},
        "correct": -1,
    }


def order_for(transport: Transport) -> Order:
    """Return an order of one sample whose answer travels so."""
    return ask(Order("g", "gradient", Snapshot(0, {}), 0, 1), transport)


def accept(data: bytes, order: Order, layers: Shapes) -> Reply:
    """Decode and check an answer as a run does."""
    forms = {name: Form("float32", shape) for name, shape in layers.items()}
    value = receive(from_node(decode(data)), order, forms)
    return check_reply(value, Expectation(0, 1, forms, {}))


def measure(layers: Shapes = LAYERS, runs: int = 7, jail: bool = True) -> list[Row]:
    """Return speed and size of each codec, and what it costs in the jail."""
    gradient = make_gradient(layers)
    lists_s, text = seconds_once(lambda: by_lists(gradient, layers))
    orders = {name: order_for(codec) for name, (codec, *_) in CODECS.items()}

    def send(order: Order) -> bytes:
        given: dict[str, Any] = {"settings": dict(order.settings)}
        return encode(to_node(answer(given, gradient)))

    def travel(order: Order) -> Callable[[], Reply]:
        return lambda: accept(send(order), order, layers)

    seconds = interleaved_medians({n: travel(o) for n, o in orders.items()}, runs)
    rows: list[Row] = []
    for name, order in orders.items():
        rows.append(_speed(name, seconds[name], lists_s))
        rows.append(_size(name, len(send(order)), len(text)))
    return [*rows, *(measure_jailed(layers, runs) if jail else [])]


def by_lists(gradient: dict[str, np.ndarray], layers: Shapes) -> str:
    """Send and receive the gradient as the thesis's trainers do; return what travels."""
    text = json.dumps({name: array.tolist() for name, array in gradient.items()})
    rows = json.loads(text)
    check_gradient({name: np.array(r, "float32") for name, r in rows.items()}, layers)
    return text


def measure_jailed(layers: Shapes, runs: int) -> list[Row]:
    """Return the whole way from order to accepted reply, each codec against raw."""
    level = load_level("numeric")
    jail = Jail(level, TASK_JOB)

    def run(order: Order) -> Callable[[], Reply]:
        shapes: dict[str, Plain] = {name: list(shape) for name, shape in layers.items()}
        given = {"shapes": shapes, "settings": dict(order.settings)}
        task = capture_task(draw_and_answer, given)
        request = TaskRequest(task.task_module, task.entry, task.arguments)

        def once() -> Reply:
            outcome = run_task(jail, request, level.default_limits())
            assert outcome.value is not None, outcome
            return accept(outcome.value, order, layers)

        return once

    try:
        orders = {name: order_for(codec) for name, (codec, *_) in CODECS.items()}
        found = interleaved_medians({n: run(o) for n, o in orders.items()}, runs)
    finally:
        jail.close()
    plain = Row(f"{JAILED}, raw", found["raw"] * 1e3, "ms")
    rest = [name for name in orders if name != "raw"]
    return [plain, *(_jailed(name, found[name], found["raw"]) for name in rest)]


def _speed(name: str, ours: float, lists: float) -> Row:
    reach, ratio = CODECS[name][1], lists / ours
    return Row(
        name=f"gradient, {name}: encode + decode + check",
        ours=ours * 1e3,
        unit="ms",
        peer_name="JSON lists",
        peer=lists * 1e3,
        ratio=ratio,
        ratio_of="times faster",
        target=f">= {reach:g}x" if reach else "",
        met=ratio >= reach if reach else None,
    )


def _size(name: str, ours: int, lists: int) -> Row:
    reach, ratio = CODECS[name][2], lists / ours
    return Row(
        name=f"gradient, {name}: size",
        ours=ours / 1e6,
        unit="MB",
        peer_name="JSON lists",
        peer=lists / 1e6,
        ratio=ratio,
        ratio_of="times smaller",
        target=f">= {reach:g}x",
        met=ratio >= reach,
    )


def _jailed(name: str, ours: float, raw: float) -> Row:
    return Row(
        name=f"{JAILED}, {name}",
        ours=ours * 1e3,
        unit="ms",
        peer_name="raw",
        peer=raw * 1e3,
        ratio=ours / raw,
        ratio_of="of raw",
    )
