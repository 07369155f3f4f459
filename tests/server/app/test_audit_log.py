from __future__ import annotations

import asyncio

import pytest

from stoilo.core.errors import TrustError
from stoilo.server.app.audit_log import check_log_size
from tests.support.serverbench import Bench


def test_log_as_large_as_everybody_remembers_is_taken(bench: Bench) -> None:
    asyncio.run(bench.issued("k"))
    check_log_size(len(bench.log.leaves), 1, bench.store)


def test_log_smaller_than_the_signer_remembers_is_refused(bench: Bench) -> None:
    with pytest.raises(TrustError, match="STO-L041"):
        check_log_size(0, 1, bench.store)


def test_log_without_an_acknowledged_leaf_is_refused(bench: Bench) -> None:
    asyncio.run(bench.issued("k"))
    with pytest.raises(TrustError, match="STO-L041"):
        check_log_size(0, 0, bench.store)
