"""A researcher's pages: his tasks, each of them, what became of it, and what ends it.

All of it comes from the desk that answers gRPC, which checks at every call whose a task is.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import StreamingResponse

from stoilo.core.codec.json_values import render_json_value
from stoilo.core.codec.nodes import Instance, Ndarray, NumpyScalar, Tensor
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import DeniedError, StoiloError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import TaskState, name_of_label
from stoilo.server.api.service import CHUNK_BYTES
from stoilo.web.console import wording
from stoilo.web.console.asking import HEADERS, Asked, download, go
from stoilo.web.console.live import Part, answer_live
from stoilo.web.details import list_measures, remarks_of
from stoilo.web.language import gettext
from stoilo.web.listing import list_source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from typing import BinaryIO

    import jinja2
    from starlette.responses import Response

    from stoilo.core.codec.nodes import Node
    from stoilo.server.api.tasks import Submitted
    from stoilo.server.app.task_server import TaskServer
    from stoilo.web.listing import Listing

ON_PAGE: Final = 25  # tasks of one page
MOST_PAGES: Final = 40  # all that one list gives
SHOWN_BYTES: Final = 4096  # a longer value is told of by its shape, and downloaded
SHOWN_ITEMS: Final = 100  # of a map, on its page
_KEY = re.compile(r"[A-Za-z0-9_-]{16,32}")
BYTES: Final = "application/octet-stream"


@dataclass(slots=True)
class Label:
    """Tasks that share a label, numbers at its end aside: one map or training."""

    name: str
    newest: str  # label of the newest, for its list
    states: Counter[str] = field(default_factory=Counter)
    items: int = 0  # calls of maps among them
    began_at: int = 0  # when the oldest was made, s

    @property
    def ended(self) -> int:
        """How many are final."""
        return sum(n for state, n in self.states.items() if TaskState(state).final)


class Research:
    """The handlers; they block but for `resubmit`."""

    def __init__(
        self, tasks: TaskServer, load: Callable[[str], jinja2.Template]
    ) -> None:
        self._tasks, self._load = tasks, load

    def tasks(self, asked: Asked) -> Response:
        """``/console/?state=&label=&page=``: his tasks, newest first, why each waits."""
        owner = asked.visitor.owner
        page, state = asked.number("page", MOST_PAGES), asked.query("state")
        question = pb.ListTasksRequest(
            states=[state] if state else [],
            label=asked.query("label"),
            limit=ON_PAGE * page + 1,
        )
        found = self._tasks.desk.list_tasks(owner, question).tasks
        shown = found[ON_PAGE * (page - 1) : ON_PAGE * page]
        poll = self._tasks.desk.poll
        waits = {
            one.task_id: poll(owner, one.task_id).explanation
            for one in shown
            if not TaskState(one.state).final
        }
        return asked.render(
            "console/tasks.html",
            tasks=shown,
            waits=waits,
            state=state,
            states=list(TaskState),
            label=question.label,
            page=page,
            more=len(found) > ON_PAGE * page and page < MOST_PAGES,
        )

    def task(self, asked: Asked) -> Response:
        """``/console/task/ID``: one task, all that its owner may know."""
        owner, desk = asked.visitor.owner, self._tasks.desk
        submitted = None if asked.live else desk.read(owner, asked.task_id)
        polled, gone = pb.PollTaskResponse(task_id=asked.task_id), None
        try:
            polled = desk.poll(owner, asked.task_id)
        except StoiloError as error:  # a result that was deleted; the rest is here
            if submitted is None:
                raise
            polled.state, gone = submitted.task.state, error
        hosts = desk.find_hosts(owner, asked.task_id)
        final = TaskState(polled.state).final
        text = self._load("console/task_part.html").render(
            polled=polled, hosts=hosts, final=final, live=asked.live
        )
        state = gettext(wording.STATES[polled.state])
        said = gettext("The task is %(state)s.") % {"state": state}
        part = Part(text, said, not final)
        more = {"polled": polled, "hosts": hosts, "gone": gone}
        return answer_live(
            *(asked, part, "console/task.html"),
            lambda: _describe(submitted, polled, asked) | more if submitted else more,
        )

    def source(self, asked: Asked) -> Response:
        """``/console/task/ID/source.py``: exactly the bytes that were admitted."""
        found = self._tasks.desk.read(asked.visitor.owner, asked.task_id)
        body = found.contents.get(found.task.spec.task_module)
        if body is None:
            raise _no_result()
        return download(body, f"{found.task.task_id}.py", "text/plain; charset=utf-8")

    def result(self, asked: Asked) -> Response:
        """``/console/task/ID/result/NAME``: the value as JSON, or as it is encoded.

        NAME is ``value.json``, ``value.skeleton``, or ``N.skeleton`` for a map's item N;
        ``case.json`` is what an auditor needs to run the task again.
        """
        owner, name = asked.visitor.owner, str(asked.request.path_params["name"])
        if name == "case.json":
            case = msgspec.json.encode(self._tasks.desk.read_case(owner, asked.task_id))
            return download(case, f"{asked.task_id}.case.json", "application/json")
        polled = self._tasks.desk.poll(owner, asked.task_id)
        part, _, form = name.partition(".")
        one: pb.PollTaskResponse | pb.ItemOutcome = polled
        if part.isascii() and part.isdecimal() and int(part) < len(polled.items):
            one = polled.items[int(part)]
        elif part != "value":
            raise _no_result()
        if form == "json" and one is polled and (polled.value or polled.items):
            text = json.dumps(as_json(polled), indent=1, allow_nan=False)
            return download(text.encode(), f"{polled.task_id}.json", "application/json")
        if form != "skeleton" or not (one.value or one.value_blob):
            raise _no_result()
        saved = f"{polled.task_id}.{name.removeprefix('value.')}"
        if one.value:
            return download(one.value, saved, BYTES)
        file = self._tasks.blobs.open_granted(owner.account_id, one.value_blob)
        kept = {"content-disposition": f'attachment; filename="{saved}"'}
        return StreamingResponse(_pieces(file), 200, HEADERS | kept, BYTES)

    def cancel(self, asked: Asked) -> Response:
        """Cancel a task; one that has ended stays as it is, and its page says so."""
        owner, desk = asked.visitor.owner, self._tasks.desk
        ended = TaskState(desk.poll(owner, asked.task_id).state).final
        desk.cancel(owner, asked.task_id)
        said = "ended" if ended else "cancelled"
        return go(f"/console/task/{asked.task_id}?said={said}")

    def resubmit(self, asked: Asked) -> Awaitable[Response]:
        """Submit the same again, through everything that a new task passes.

        The form's key is the idempotency key: sent twice it makes one task.
        """
        key = asked.fields.get("key", "")
        if not _KEY.fullmatch(key):
            raise DeniedError("STO-E016", "this form has no key", hint="open its page")
        found = self._tasks.desk.read(asked.visitor.owner, asked.task_id)
        return self._create(asked.visitor.token, found.request(f"console-{key}"))

    async def _create(self, token: str, request: pb.CreateTaskRequest) -> Response:
        row = await self._tasks.submissions.create(token, request)
        return go(f"/console/task/{row.task_id}?said=resubmitted")


def _describe(
    submitted: Submitted, polled: pb.PollTaskResponse, asked: Asked
) -> dict[str, object]:
    spec, contents = submitted.task.spec, submitted.contents
    return {
        "task": submitted.task,
        "spec": spec,
        "value": describe_result(polled),
        "items": Counter(one.state for one in polled.items),
        "shown_items": list(enumerate(polled.items))[:SHOWN_ITEMS],
        "arguments": _described(contents.get(spec.arguments)),
        "listing": _listed(contents.get(spec.task_module)),
        "validator": _listed(contents.get(spec.validator_module)),
        "findings": remarks_of(*spec.codes),
        "ended": remarks_of(polled.code),
        "limits": [*list_measures(spec.limits), *list_measures(spec.redundancy)],
        "said": gettext(wording.SAID.get(asked.query("said"), "")),
        "key": os.urandom(12).hex(),
    }


def group_by_label(tasks: Iterable[pb.ListedTask]) -> list[Label]:
    """Return the labels of tasks (newest first) with how many are in which state. Pure."""
    found: dict[str, Label] = {}
    for task in tasks:
        name = name_of_label(task.label)
        one = found.setdefault(name, Label(name, task.label))
        one.states[task.state] += 1
        one.items += task.map_items
        one.began_at = task.created_at
    return list(found.values())


def describe_value(node: Node) -> str:
    """Return what a value is, without what is in it. Pure but for the page's language."""
    kind = gettext(wording.KINDS.get(type(node).__name__, type(node).__name__))
    match node:
        case Ndarray() | Tensor():
            form = gettext("%(kind)s of %(dtype)s, shape %(shape)s")
            return form % {"kind": kind, "dtype": node.dtype, "shape": node.shape}
        case NumpyScalar():
            return gettext("%(dtype)s of numpy") % {"dtype": node.dtype}
        case Instance():
            return gettext("a %(kind)s") % {"kind": node.class_name}
        case str() | bytes() | list() | tuple() | set() | frozenset() | dict():
            of = gettext("%(kind)s of %(count)s")
            said = of % {"kind": kind, "count": len(node)}
        case _:
            return kind
    if not isinstance(node, dict):
        return said
    parts = [f"{key}: {describe_value(one)}" for key, one in [*node.items()][:8]]
    return f"{said} ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Shown:
    """A value on its task's page."""

    shape: str
    text: str = ""  # JSON of a short one


def show_json(value: object) -> str:
    """Return a value of `render_json_value` as people read it."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def describe_result(polled: pb.PollTaskResponse) -> Shown | None:
    """Return a succeeded task's value, None where there is none to show. Pure."""
    if polled.value_blob:
        return Shown(gettext("more than 1 MiB: download it"))
    if not polled.value:
        return None
    node, text = decode(polled.value), ""
    if len(polled.value) <= SHOWN_BYTES:
        text = show_json(render_json_value(node))
    return Shown(describe_value(node), text)


def as_json(polled: pb.PollTaskResponse) -> object:
    """Return a value, or a map's items, as JSON writes it (`core.codec.json_values`)."""
    if polled.value:
        return render_json_value(decode(polled.value))
    fields = ("error_type", "error_text", "code", "value_blob")
    return [
        {"state": one.state}
        | ({"value": render_json_value(decode(one.value))} if one.value else {})
        | {name: getattr(one, name) for name in fields if getattr(one, name)}
        for one in polled.items
    ]


def _described(data: bytes | None) -> str:
    return gettext("deleted since") if data is None else describe_value(decode(data))


def _listed(data: bytes | None) -> Listing | None:
    return list_source(data) if data else None


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        yield from iter(partial(file.read, CHUNK_BYTES), b"")


def _no_result() -> DeniedError:
    return DeniedError("STO-R003", "the task has no such result", hint="see its page")
