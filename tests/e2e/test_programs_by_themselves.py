"""A stock client asks a fresh server: it is told, and some minutes later it has programs."""

import sys

import pytest

from stoilo.testing.deployment import Deployment
from tests.support.wire import BoincPeer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PURE_ALONE = """
import sys
from stoilo.server.operations import programs
programs.light_flavors = lambda _offered: ("pure",)  # torch is installed for tests
from stoilo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class SmallDeployment(Deployment):
    """A server of an installation that has nothing large."""

    def command(self):
        """Return the command line."""
        return [sys.executable, "-c", PURE_ALONE, *self.words()]


def asked(peer):
    """Return what the project tells a client of BOINC's own."""
    platform = b"<platform_name>x86_64-pc-linux-gnu</platform_name>"
    request = peer.request(instances=1).replace(b"<stoilo_own_program/>", platform)
    return peer.send("POST", "/sched", request).body.decode()


def test_client_is_told_and_then_has_programs(tmp_path, wait_until):
    log = tmp_path / "up.log"
    with SmallDeployment(tmp_path / "data", log=log) as server:
        peer = BoincPeer(server.line.http, server.account("a@example.org"))
        first = asked(peer)
        assert ("making its programs" in first, "<request_delay>60" in first) == (
            True,
            True,
        )
        wait_until(lambda: "have their programs" in log.read_text(), 1500.0)
        wait_until(lambda: "making its programs" not in asked(peer))
        assert "no program for your platform" not in asked(peer)
        assert not (tmp_path / "data" / "run" / "programs").exists()
