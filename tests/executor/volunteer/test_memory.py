"""The project's key on first use and afterwards; what else is remembered."""

from __future__ import annotations

from contextlib import closing

import pytest

from stoilo.core.boinc.codesign import render_boinc_public
from stoilo.core.boinc.messages import SchedulerReply
from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.volunteer.ledger import Ledger, ProjectMemory, read_memory
from stoilo.executor.volunteer.scheduler import key_after, memory_after
from stoilo.signer.boinc_keys import generate_boinc_key, sign_key_change

OLD, NEW = generate_boinc_key(), generate_boinc_key()
OLD_TEXT, NEW_TEXT = render_boinc_public(OLD.public), render_boinc_public(NEW.public)


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path, "http://x/")) as made:
        yield made


def test_memory_is_kept_over_a_restart_and_a_reply_without_a_key(tmp_path, ledger):
    assert key_after("", SchedulerReply(code_sign_key=OLD_TEXT)) == OLD_TEXT
    ledger.save_memory(memory_after(ledger.memory, SchedulerReply(), OLD_TEXT))
    assert key_after(read_memory(tmp_path).code_sign_key, SchedulerReply()) == OLD_TEXT


def test_key_that_the_former_signed_replaces_it():
    signature = sign_key_change(NEW.public, OLD)
    reply = SchedulerReply(code_sign_key=NEW_TEXT, code_sign_key_signature=signature)
    assert key_after(OLD_TEXT, reply) == NEW_TEXT


@pytest.mark.parametrize(
    "signature",
    ["", sign_key_change(NEW.public, NEW), sign_key_change(OLD.public, OLD)],
)
def test_key_without_the_formers_signature_is_refused(signature):
    reply = SchedulerReply(code_sign_key=NEW_TEXT, code_sign_key_signature=signature)
    with pytest.raises(TrustError, match="STO-X040"):
        key_after(OLD_TEXT, reply)


def test_first_key_that_is_none_is_refused():
    with pytest.raises(TrustError, match="STO-X040"):
        key_after("", SchedulerReply(code_sign_key="1024\nab\n.\n"))


def test_messages_are_the_newest_once_each():
    memory = ProjectMemory()
    for number in range(30):
        reply = SchedulerReply(messages=("again", f"m{number}"))
        memory = memory_after(memory, reply, "")
    assert len(memory.messages) == 20
    assert memory.messages[-2:] == ("again", "m29")
    assert memory.messages.count("again") == 1


def test_damaged_file_is_named(tmp_path):
    (tmp_path / "project.json").write_bytes(b"{")
    with pytest.raises(InternalError, match=r"project\.json.*STO-X008"):
        read_memory(tmp_path)


def test_words_without_end_cost_only_themselves(tmp_path, ledger):
    reply = SchedulerReply(
        project_preferences="\u2603" * 60_000, messages=("m" * 90_000,)
    )
    ledger.save_memory(memory_after(ledger.memory, reply, OLD_TEXT))
    assert read_memory(tmp_path) == ProjectMemory(code_sign_key=OLD_TEXT)
