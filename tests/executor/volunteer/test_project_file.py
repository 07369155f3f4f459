"""The project's key on first use and afterwards; what else is remembered."""

from __future__ import annotations

import pytest

from stoilo.core.boinc.codesign import render_boinc_public
from stoilo.core.boinc.messages import SchedulerReply, UserInfo
from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.volunteer.project_file import ProjectFile, key_after, read_memory
from stoilo.signer.boinckeys import generate_boinc_key, sign_key_change

OLD, NEW = generate_boinc_key(), generate_boinc_key()
OLD_TEXT, NEW_TEXT = render_boinc_public(OLD.public), render_boinc_public(NEW.public)


def test_first_key_is_taken_and_kept(tmp_path):
    ProjectFile(tmp_path).learn(SchedulerReply(code_sign_key=OLD_TEXT))
    again = ProjectFile(tmp_path)
    again.learn(SchedulerReply())
    assert again.memory.code_sign_key == OLD_TEXT


def test_key_that_the_former_signed_replaces_it():
    signature = sign_key_change(NEW.public, OLD)
    reply = SchedulerReply(code_sign_key=NEW_TEXT, code_sign_key_signature=signature)
    assert key_after(OLD_TEXT, reply) == NEW_TEXT


@pytest.mark.parametrize(
    "signature",
    ["", sign_key_change(NEW.public, NEW), sign_key_change(OLD.public, OLD)],
)
def test_key_without_the_formers_signature_is_refused(tmp_path, signature):
    file = ProjectFile(tmp_path)
    file.learn(SchedulerReply(code_sign_key=OLD_TEXT))
    user = UserInfo(1, "ann", 0, total_credit=5.0)
    with pytest.raises(TrustError, match="STO-X040"):
        file.learn(
            SchedulerReply(
                code_sign_key=NEW_TEXT, code_sign_key_signature=signature, user=user
            )
        )
    assert file.memory.code_sign_key == OLD_TEXT
    assert file.memory.user == user  # the rest of the reply counts


def test_first_key_that_is_none_is_refused():
    with pytest.raises(TrustError, match="STO-X040"):
        key_after("", SchedulerReply(code_sign_key="1024\nab\n.\n"))


def test_messages_are_the_newest_once_each(tmp_path):
    file = ProjectFile(tmp_path)
    for number in range(30):
        file.learn(SchedulerReply(messages=("again", f"m{number}")))
    assert len(file.memory.messages) == 20
    assert file.memory.messages[-2:] == ("again", "m29")
    assert file.memory.messages.count("again") == 1


def test_damaged_file_is_named(tmp_path):
    (tmp_path / "project.json").write_bytes(b"{")
    with pytest.raises(InternalError, match=r"project\.json.*STO-X008"):
        read_memory(tmp_path)


def test_words_without_end_cost_only_themselves(tmp_path):
    file = ProjectFile(tmp_path)
    file.learn(SchedulerReply(code_sign_key=OLD_TEXT))
    file.learn(
        SchedulerReply(project_preferences="\u2603" * 60_000, messages=("m" * 90_000,))
    )
    assert read_memory(tmp_path).code_sign_key == OLD_TEXT
