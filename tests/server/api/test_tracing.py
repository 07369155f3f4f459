"""One trace from submit to result: our client and our server, in one process."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stoilo.client.address import Address
from stoilo.client.connection import connect
from stoilo.client.session import Journal
from stoilo.core import tracing
from stoilo.core.codec.skeleton import encode
from stoilo.server.api.grpc_server import bind_grpc
from stoilo.server.tls import ensure_tls
from tests.support.server import make_result
from tests.support.serverbench import Bench

STEPS = {"submit", "wait", "admit", "issue", "validate"}
CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Return what receives spans during the test; the process' provider stays unset."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("stoilo"))
    return exporter


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the contexts of each call that creates tasks, as they arrive."""
    seen: list[list[str]] = []
    begin = tracing.begin

    def note(metadata: Any, *told: Any) -> None:
        names = (tracing.HEADER, tracing.MANY_HEADER)
        found = [value for key, value in metadata if key in names]
        seen.append([one for value in found for one in value.split(",")])
        begin(metadata, *told)

    monkeypatch.setattr(tracing, "begin", note)
    return seen


def finish(bench: Bench, task_id: str) -> None:
    name, statement = f"{task_id}_1", bench.statement(task_id)
    frame = {"status": "ok", "value": encode(5)}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)


def compute(bench: Bench, count: int = 2) -> list[str]:
    """Submit tasks by our client, have them issued and judged; return their ids."""

    async def work() -> list[str]:
        tls = ensure_tls(bench.directory / "tls", dt.datetime.now(dt.UTC))
        server, port = bind_grpc(bench.server.service, "127.0.0.1:0", tls)
        await server.start()
        address = Address(f"localhost:{port}", bench.token, tls.ca, "bench")
        async with connect(address, journal=Journal(None)) as conn:
            made = [
                conn.create_task(lambda kw: kw["x"], {"x": n}) for n in range(count)
            ]
            tasks = await asyncio.gather(*(one.submit() for one in made))
            await asyncio.to_thread(bench.server.pipeline.run_once)
            for task in tasks:
                await asyncio.to_thread(finish, bench, task.task_id)
            assert [await task.result() for task in tasks] == [5] * count
        await server.stop(None)
        return [task.task_id for task in tasks]

    return asyncio.run(work())


def test_a_task_is_one_trace_from_submit_to_result(
    bench: Bench, exported: InMemorySpanExporter
) -> None:
    for task_id in compute(bench):
        found = {
            one.name.removeprefix("stoilo."): one
            for one in exported.get_finished_spans()
            if one.attributes["stoilo.task_id"] == task_id
        }
        assert found.keys() == STEPS
        root = found.pop("submit")
        assert root.parent is None
        for one in found.values():
            assert one.context.trace_id == root.context.trace_id
            assert one.parent.span_id == root.context.span_id
        assert found["validate"].attributes["stoilo.state"] == "succeeded"
        assert found["issue"].start_time >= root.start_time


def test_a_programs_own_span_is_the_parent(
    bench: Bench, exported: InMemorySpanExporter
) -> None:
    with tracing.span("experiment"):
        own = trace.get_current_span().get_span_context()
        compute(bench, 1)
    spans = exported.get_finished_spans()
    assert {one.context.trace_id for one in spans} == {own.trace_id}
    (submitted,) = (one for one in spans if one.name == "stoilo.submit")
    assert submitted.parent.span_id == own.span_id


def test_no_context_is_kept_on_disk(
    bench: Bench, exported: InMemorySpanExporter
) -> None:
    (task_id,) = compute(bench, 1)
    context = exported.get_finished_spans()[0].context
    written = [p.read_bytes() for p in bench.directory.rglob("*") if p.is_file()]
    names = [f"{context.trace_id:032x}".encode(), context.trace_id.to_bytes(16, "big")]
    assert any(task_id.encode() in data for data in written)  # the search would find it
    assert not any(name in data for data in written for name in names)


def test_many_contexts_go_out_in_more_calls(
    bench: Bench,
    headers: list[list[str]],
    exported: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "MOST_SENT", 4)
    compute(bench, 6)
    assert sorted(map(len, headers)) == [2, 4]
    assert len({one for call in headers for one in call}) == 6
    assert len(exported.get_finished_spans()) == 6 * len(STEPS)


def test_without_a_provider_nothing_is_sent(
    bench: Bench, headers: list[list[str]]
) -> None:
    compute(bench)
    assert headers == [[]]


@pytest.mark.parametrize(
    "sent", ["", "x" * 4000, f"{CONTEXT},{CONTEXT}", "é" * 54, "00-" + "0" * 51]
)
def test_headers_of_another_form_are_no_context(
    sent: str, exported: InMemorySpanExporter
) -> None:
    tracing.begin([(tracing.HEADER, sent)], ["odd"], 0)
    assert exported.get_finished_spans() == ()
    tracing.begin([(tracing.HEADER, CONTEXT)], ["good"], 0)
    assert len(exported.get_finished_spans()) == 1


def test_headers_of_no_sense_are_no_parent(exported: InMemorySpanExporter) -> None:
    tracing.begin([(tracing.HEADER, "x" * tracing.HEADER_CHARS)], ["odd"], 0)
    (made,) = exported.get_finished_spans()
    assert made.parent is None


def test_the_oldest_context_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_KEPT", 2)
    monkeypatch.setattr(tracing, "_of_task", type(tracing._of_task)())
    for number in range(4):
        tracing.begin([(tracing.HEADER, CONTEXT)], [str(number)], 0)
    assert list(tracing._of_task) == ["2", "3"]


def test_without_the_package_everything_goes_on() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from stoilo.core import tracing\n"
        "import stoilo.client.task\n"
        "with tracing.span('a', 'b', c=1):\n"
        "    tracing.note(d=2)\n"
        f"tracing.begin([('traceparent', {CONTEXT!r})], ['t'], 0)\n"
        "tracing.record('e', 't', 0)\n"
        "print(repr(tracing.present()), tracing.headers(['']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("'' ()\n", 0), done.stderr
