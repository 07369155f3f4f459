"""The wire as an attacker has it: raw bytes to the gRPC and the BOINC interface.

For tests of bad input and of faults, against a deployment that runs as processes
(`stoilo.testing.deployment`). Nothing here parses what it sends, so anything can be sent.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import grpc

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError
from stoilo.core.rpc import tasks_pb2 as pb

__all__ = ["BoincPeer", "HttpAnswer", "RawClient", "WireAnswer"]

SERVICE = "/stoilo.v1.TaskService/"
DOUBLE = b"def task(kwargs):\n    return kwargs['x'] * 2\n"
SENT_CHUNK = 1024 * 1024
UNFINISHED = frozenset({"admitting", "running"})


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """How one call ended.

    Attributes:
        status: name of the gRPC status, ``OK`` for success.
        code: our stable code in the error detail, empty without.
        text: the status's text, or the message of the error detail.
        body: the answer's raw bytes (of a stream: all messages).
    """

    status: str
    code: str = ""
    text: str = ""
    body: bytes = b""


class RawClient:
    """A researcher's channel that sends any bytes as any call.

    Args:
        connection: a server's connection file.
        token: instead of the one in the file.
    """

    def __init__(self, connection: Path, token: str | None = None) -> None:
        page = json.loads(connection.read_text(encoding="utf-8"))
        credentials = grpc.ssl_channel_credentials(page["ca"].encode())
        large = 256 * 1024 * 1024
        self._channel = grpc.secure_channel(
            page["grpc"],
            credentials,
            options=[
                ("grpc.max_send_message_length", large),
                ("grpc.max_receive_message_length", large),
            ],
        )
        self.token = page["token"] if token is None else token

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def call(
        self,
        method: str,
        body: bytes,
        *,
        token: str | None = None,
        metadata: Sequence[tuple[str, str | bytes]] | None = None,
        timeout_s: float = 30.0,
    ) -> WireAnswer:
        """Send raw bytes as a unary call; never raises for what the server says."""
        rpc = self._channel.unary_unary(SERVICE + method)
        return self._outcome(
            lambda: rpc(
                body, metadata=self._headers(token, metadata), timeout=timeout_s
            )
        )

    def send_stream(
        self, method: str, bodies: Iterable[bytes], *, timeout_s: float = 60.0
    ) -> WireAnswer:
        """Send raw messages as a client stream."""
        rpc = self._channel.stream_unary(SERVICE + method)
        return self._outcome(
            lambda: rpc(iter(bodies), metadata=self._headers(), timeout=timeout_s)
        )

    def read_stream(self, method: str, body: bytes) -> WireAnswer:
        """Send raw bytes and join the messages of the answer."""
        rpc = self._channel.unary_stream(SERVICE + method)
        return self._outcome(
            lambda: b"".join(rpc(body, metadata=self._headers(), timeout=60.0))
        )

    def create(self, **fields: Any) -> WireAnswer:
        """Send CreateTask; a sound doubling task unless `fields` say otherwise."""
        sound = {
            "idempotency_key": secrets.token_hex(16),
            "task_module": DOUBLE,
            "entry": "task",
            "arguments": encode({"x": 21}),
        }
        request = pb.CreateTaskRequest(**(sound | fields))
        return self.call("CreateTask", request.SerializeToString())

    def submit(self, **fields: Any) -> str:
        """Return the id of a new task; raises ``STO-U005`` when it is refused."""
        answer = self.create(**fields)
        if answer.status != "OK":
            raise InternalError("STO-U005", f"not taken: {answer}")
        return pb.CreateTaskResponse.FromString(answer.body).task_id

    def poll(self, task_id: str) -> pb.PollTaskResponse:
        """Return where a task is; raises ``STO-U005`` when the server does not say."""
        request = pb.PollTaskRequest(task_id=task_id)
        answer = self.call("PollTask", request.SerializeToString())
        if answer.status != "OK":
            raise InternalError("STO-U005", f"no answer: {answer}")
        return pb.PollTaskResponse.FromString(answer.body)

    def cancel(self, task_id: str) -> WireAnswer:
        """Cancel a task."""
        request = pb.CancelTaskRequest(task_id=task_id)
        return self.call("CancelTask", request.SerializeToString())

    def wait(self, task_id: str, seconds: float = 120.0) -> pb.PollTaskResponse:
        """Poll until the task is final; raises ``STO-U005`` after that many s."""
        deadline = time.monotonic() + seconds
        while (answer := self.poll(task_id)).state in UNFINISHED:
            if time.monotonic() > deadline:
                raise InternalError("STO-U005", f"task does not end: {answer}")
            time.sleep(0.1)
        return answer

    def upload(self, digest: str, size: int, *chunks: bytes) -> WireAnswer:
        """Send UploadBlob with these words and chunks."""
        first, rest = (chunks[0] if chunks else b""), chunks[1:]
        messages = [pb.UploadBlobRequest(digest=digest, size=size, data=first)]
        messages += [pb.UploadBlobRequest(data=chunk) for chunk in rest]
        return self.send_stream(
            "UploadBlob", [message.SerializeToString() for message in messages]
        )

    def download(self, digest: str) -> WireAnswer:
        """Send DownloadBlob."""
        request = pb.DownloadBlobRequest(digest=digest)
        return self.read_stream("DownloadBlob", request.SerializeToString())

    def _headers(
        self,
        token: str | None = None,
        metadata: Sequence[tuple[str, str | bytes]] | None = None,
    ) -> list[tuple[str, str | bytes]]:
        if metadata is not None:
            return list(metadata)
        used = self.token if token is None else token
        return [("authorization", f"Bearer {used}")]

    @staticmethod
    def _outcome(send: Any) -> WireAnswer:
        try:
            return WireAnswer("OK", body=send())
        except grpc.RpcError as error:
            trailing = dict(error.trailing_metadata() or ())
            detail = pb.ErrorDetail.FromString(trailing.get("stoilo-error-bin", b""))
            text = detail.message or error.details() or ""
            return WireAnswer(error.code().name, detail.code, text)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer; status 0 when the server closed the connection without one."""

    status: int
    body: bytes

    def field(self, tag: str) -> str:
        """Return the text of the first element `tag`, empty without."""
        match = re.search(
            f"<{tag}>([^<]*)</{tag}>", self.body.decode("utf-8", "replace")
        )
        return match[1] if match else ""


class BoincPeer:
    """Somebody with (or without) an account who speaks to the project in raw bytes.

    Args:
        project: master URL with final slash.
        key: authenticator for `ask_work`.
    """

    def __init__(self, project: str, key: str = "") -> None:
        self._address = urlsplit(project).netloc
        self._cpid = secrets.token_hex(16)
        self._seqno = 0
        self.key = key

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: dict[str, str] | None = None,
    ) -> HttpAnswer:
        """Send one request; a connection that the server closes is status 0."""
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return HttpAnswer(response.status, response.read())
        except (OSError, http.client.HTTPException):
            return HttpAnswer(0, b"")
        finally:
            connection.close()

    def request(
        self,
        *,
        key: str | None = None,
        instances: int = 0,
        reports: str = "",
        host_id: int = 0,
    ) -> bytes:
        """Return a scheduler request; `reports` is put in as it is."""
        self._seqno += 1
        return (
            f"<scheduler_request><authenticator>{self.key if key is None else key}"
            f"</authenticator><hostid>{host_id}</hostid>"
            f"<rpc_seqno>{self._seqno}</rpc_seqno><stoilo_own_program/>"
            f"<cpu_req_instances>{instances}</cpu_req_instances>"
            f"<host_info><host_cpid>{self._cpid}</host_cpid><p_ncpus>64</p_ncpus>"
            f"</host_info>{reports}</scheduler_request>"
        ).encode()

    def schedule(self, **words: Any) -> HttpAnswer:
        """Make one scheduler call."""
        return self.send("POST", "/sched", self.request(**words))

    def report(self, name: str, *, state: int = 5, exit_status: int = 0) -> HttpAnswer:
        """Report a copy as finished."""
        return self.schedule(
            reports=f"<result><name>{name}</name><state>{state}</state>"
            f"<exit_status>{exit_status}</exit_status></result>"
        )

    def upload(self, path: str, name: str, data: bytes, **words: object) -> HttpAnswer:
        """Upload a file; `words` (nbytes, md5, offset) replace the true ones."""
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        said = {"nbytes": len(data), "md5": md5, "offset": 0} | words
        head = (
            "<data_server_request><file_upload><file_info>"
            f"<name>{name}</name></file_info><nbytes>{said['nbytes']}</nbytes>"
            f"<md5_cksum>{said['md5']}</md5_cksum><offset>{said['offset']}</offset>"
            "<data>\n"
        )
        return self.send("POST", path, head.encode() + data)
