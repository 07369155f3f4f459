"""What is installed here runs tasks: whatever can be imported, in one warm jail a level."""

import pytest

from stoilo.core.errors import InternalError
from stoilo.executor.volunteer.installed import InstalledRuntimes, installed_flavors
from stoilo.flavors.manifest import find_flavor
from tests.executor.verifier.test_tree_runtimes import LEVEL, Made
from tests.support.gate import FLAVOR


def test_installed_runtimes_hold_what_can_be_imported(gate):
    made = []
    runtimes = InstalledRuntimes(lambda level: made.append(Made(level, ())) or made[-1])
    assert find_flavor("pure").digest in runtimes.flavors(gate.root.trust)
    assert installed_flavors() == runtimes.flavors(gate.root.trust)
    runtimes.jail(LEVEL, FLAVOR, gate.root.trust, None)
    runtimes.jail(LEVEL, "other", gate.root.trust, None)
    (only,) = made
    runtimes.close()
    assert only.closed
    with pytest.raises(InternalError, match="STO-S008"):
        runtimes.jail(LEVEL, FLAVOR, gate.root.trust, None)
