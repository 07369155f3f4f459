"""The stock engine on a fake project, driven by hand."""

from __future__ import annotations

from stoilo.server.engines.stock.engine import StockEngine
from tests.support.engine import BodyValidation, OutcomeRecorder
from tests.support.stocktools.daemons import FakeDaemons
from tests.support.stocktools.hosts import FakeHosts
from tests.support.stocktools.project import make_fake_project


class StockBench:
    def __init__(self, directory, clock, database_url="", **project):
        self.clock = clock
        self.fake = make_fake_project(directory, database_url, **project)
        self.fake.set_clock(clock())
        self.outcomes = OutcomeRecorder()
        self.validation = BodyValidation()
        self.daemons = FakeDaemons(self.fake, lambda: int(clock()))
        self.hosts = FakeHosts(self.fake, lambda: int(clock()))
        self.engine = self.open()

    def reopen(self):
        """Begin again after `close`, on what lies on the disk by now."""
        self.daemons = FakeDaemons(self.fake, lambda: int(self.clock()))
        self.hosts = FakeHosts(self.fake, lambda: int(self.clock()))
        self.engine = self.open()

    def make(self):
        return StockEngine(
            self.fake.project, database_url=self.fake.database_url, clock=self.clock
        )

    def open(self):
        made = self.make()
        made.listen(self.validation, self.outcomes)
        return made

    def close(self):
        self.engine.close()
        self.daemons.close()
        self.hosts.close()

    def fetch(self, user, *, room=8):
        self.daemons.transition()
        return self.hosts.fetch(user, room)

    def finish(self, user, copy, body):
        self.hosts.upload(copy, body)
        self.hosts.report(user, copy)

    def fail(self, user, copy):
        self.hosts.fail(user, copy)

    def report(self, user, copy):
        self.hosts.report(user, copy)

    def unneeded(self, user, *copies):
        return self.hosts.unneeded(user, copies)

    def pass_time(self, seconds):
        self.clock.now += seconds
        self.fake.set_clock(self.clock())

    def settle(self):
        for _ in range(20):
            did = self.daemons.step()
            if not (self.engine.step() | did):
                return
        raise AssertionError("the project does not come to rest")

    def restart(self):
        self.engine.close()
        self.engine = self.open()
