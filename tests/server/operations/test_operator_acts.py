"""Acts of the operator are in the log, under commitments, each one of them."""

from __future__ import annotations

import asyncio

import pytest

from stoilo.audit.format.facts import OperatorAct
from stoilo.audit.format.records import task_commitment
from stoilo.core.errors import InternalError, UsageError
from stoilo.server.admission import tokens
from stoilo.server.log.public_records import submitter_commitment
from stoilo.server.operations.accounts import cancel_for_operator
from tests.support.serverbench import Bench, acts


def test_start_and_stop_say_by_what_the_server_works(bench: Bench) -> None:
    bench.server.start()
    bench.server.stop()
    _, started, stopped = acts(bench)
    assert (started.act, stopped.act) == ("server_started", "server_stopped")
    names = {one.name for one in started.versions}
    assert names >= {"policy", "language", "level/pure"}
    assert started.version


def test_stop_logs_what_still_waits_first(bench: Bench) -> None:
    bench.server.start()
    with pytest.raises(Exception, match="STO-R020"):
        asyncio.run(bench.submit(task_module=b"import os\n"))
    bench.server.stop()
    assert "refusals" in bench.kinds()


def test_stop_of_a_server_whose_log_is_broken_is_told_later(bench: Bench) -> None:
    bench.server.start()
    bench.log.fail = InternalError("STO-L051", "the log has stopped")
    bench.server.stop()
    bench.log.fail = None
    assert acts(bench)[-1].act is OperatorAct.SERVER_STOPPED


def test_token_is_told_by_the_account_s_commitment_only(bench: Bench) -> None:
    with bench.store.write() as connection:
        token = tokens.issue_token(connection, "eve", tokens.Role.RESEARCHER, 5)
        owner = tokens.find_owner(connection, token, 6)
        for _ in range(2):
            tokens.revoke_token(connection, token, 7)
    issued, revoked = acts(bench)[1:]
    assert (issued.act, revoked.act) == ("token_issued", "token_revoked")
    assert issued.subject == revoked.subject == submitter_commitment(owner.salt)
    assert issued.until > revoked.until == 0


def test_two_equal_acts_of_one_second_are_two_leaves(bench: Bench) -> None:
    with bench.store.write() as connection:
        for _ in range(2):
            tokens.issue_token(connection, "eve", tokens.Role.RESEARCHER, 5)
    assert len(acts(bench)) == 3


def test_cancelling_for_the_operator_is_an_act_and_an_outcome(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    assert cancel_for_operator(bench.store, task_id, 9) == "cancelled"
    assert cancel_for_operator(bench.store, task_id, 9) == "cancelled"
    (act,) = (one for one in acts(bench) if one.act is OperatorAct.TASK_CANCELLED)
    assert act.task == task_commitment(task_id)
    assert bench.poll(task_id).error_text == "cancelled by the project's operator"


def test_unknown_task_cannot_be_cancelled(bench: Bench) -> None:
    with pytest.raises(UsageError, match="STO-R029"):
        cancel_for_operator(bench.store, "none", 9)
