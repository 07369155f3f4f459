"""The embedded engine driven by hand: calls its scheduler and upload desk directly."""

from __future__ import annotations

import hashlib
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import select, update

from stoilo.core.boinc.messages import (
    OtherResult,
    ReportedResult,
    ResultState,
    SchedulerRequest,
)
from stoilo.server.engines.embedded.accounts.quotas import (
    RULES,
    Quota,
    load_quotas,
    store_quota,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.server.engines.embedded.workunits.uploads import UploadHead
from tests.support.engine import BodyValidation, OutcomeRecorder

BASE = "http://project.example/"


@cache
def empty_tables():
    """Bytes of a database without rows: to migrate costs more than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.sqlite"
        database = Database(f"sqlite:///{path}")
        database.upgrade()
        database.close()
        return path.read_bytes()


class EmbeddedBench:
    def __init__(self, directory, clock, options=None, database_url=""):
        self.options = options
        self.directory = directory
        self.database_url = database_url
        self.clock = clock
        if not database_url and not directory.exists():
            directory.mkdir(mode=0o700, parents=True)
            (directory / "engine.sqlite").write_bytes(empty_tables())
        self.outcomes = OutcomeRecorder()
        self.validation = BodyValidation()
        self.engine = self.open()
        self.uploads = {}
        self.seqno = 0

    def open(self):
        return EmbeddedEngine(
            self.directory,
            clock=self.clock,
            options=self.options,
            database_url=self.database_url,
        )

    def request(self, user, *, level="pure", **fields):
        account = self.engine.accounts.ensure(
            f"u{user}@example.org", self.clock(), max_level=level
        )
        self.seqno += 1
        address = fields.pop("address", "")
        request = SchedulerRequest(
            authenticator=fields.pop("key", account.weak_key),
            host_id=fields.pop("host_id", 0),
            rpc_seqno=fields.pop("rpc_seqno", self.seqno),
            cpid=fields.pop("cpid", f"{user:032x}"),
            ncpus=fields.pop("ncpus", 64),
            own_program=fields.pop("own_program", True),
            **fields,
        )
        reply = self.engine.scheduler.handle(request, BASE, self.clock(), address)
        for result in reply.results:
            (upload,) = (info for info in reply.uploads if info.name == result.upload)
            self.uploads[result.name] = upload
        return reply

    def trust(self, user):
        self.request(user, dont_send_work=True)
        self.engine.roster.trust(f"u{user}@example.org")

    def make_unverified(self, user):
        """Let the user's account be one that somebody made over the web."""
        self.request(user, dont_send_work=True)
        table = schema.users
        mine = table.c.email == f"u{user}@example.org"
        with self.engine._database.write() as connection:
            connection.execute(
                update(table).where(mine).values(password_hash="of nobody")
            )

    def host_id(self, connection, user):
        hosts, users = schema.hosts, schema.users
        query = (
            select(hosts.c.id)
            .join(users, users.c.id == hosts.c.user_id)
            .where(users.c.email == f"u{user}@example.org")
            .order_by(hosts.c.id)
        )
        return connection.scalars(query).first()

    def set_record(self, user, valid):
        """Give the user's first host a record of the app `pure`."""
        self.request(user, dont_send_work=True)
        with self.engine._database.write() as connection:
            host = self.host_id(connection, user)
            quota = Quota(RULES.per_cpu, consecutive_valid=valid)
            known = "pure" in load_quotas(connection, host)
            store_quota(connection, host, "pure", quota, known=known)

    def record(self, user):
        with self.engine._database.read() as connection:
            known = load_quotas(connection, self.host_id(connection, user))
        return known["pure"].consecutive_valid if "pure" in known else 0

    def fetch(self, user, *, room=8, **fields):
        held = self.held(user)
        reply = self.request(
            user, cpu_req_instances=float(room), other_results=held, **fields
        )
        return [result.name for result in reply.results]

    def held(self, user):
        reply = self.request(user, level=None, dont_send_work=True)
        return tuple(OtherResult(result.name) for result in reply.results)

    def upload(self, copy, body):
        upload = self.uploads[copy]
        token = upload.url.rpartition("/")[2]
        md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
        head = UploadHead(upload.name, len(body), md5, 0)
        with self.engine.uploads.receive(token, head) as incoming:
            if incoming is not None:
                incoming.write(body)

    def report(self, user, copy, state=ResultState.UPLOADED, exit_status=0):
        reply = self.request(user, results=(ReportedResult(copy, state, exit_status),))
        assert reply.acks == (copy,)

    def finish(self, user, copy, body):
        self.upload(copy, body)
        self.report(user, copy)

    def fail(self, user, copy):
        self.report(user, copy, ResultState.COMPUTE_ERROR, 195)

    def unneeded(self, user, *copies):
        others = tuple(OtherResult(copy) for copy in copies)
        return list(self.request(user, other_results=others).aborts)

    def pass_time(self, seconds):
        self.clock.now += seconds

    def settle(self):
        for _ in range(20):
            if not self.engine.step(self.validation, self.outcomes):
                return
        raise AssertionError("the engine does not come to rest")

    def restart(self):
        self.engine.close()
        self.engine = self.open()
