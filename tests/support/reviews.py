"""A bench under a policy that wants reviews, and two reviewers with their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from stoilo.core.codec.skeleton import encode
from stoilo.core.signatures import PrivateKey
from stoilo.core.statement import parse_statement
from stoilo.executor.verifier.statements import Review, digest_arguments, sign_review
from stoilo.executor.verifier.targets import Reviewer
from stoilo.policies.policy import LevelRule, Policy, default_policy
from stoilo.policies.policy import Review as ReviewRule
from stoilo.server.admission import tokens
from stoilo.server.db import rows
from tests.support.console import run
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.core.statement import Statement
    from stoilo.server.db.records import Owner, TaskRow
    from tests.support.serverbench import Bench

DAY_S = 86_400
NO_REVIEW = default_policy()


def reviewed(level: str) -> Policy:
    """Return the default policy, but with reviews at a level."""
    rule = LevelRule(("researcher",), ReviewRule.MANUAL)
    levels = {**NO_REVIEW.levels, level: rule}
    return msgspec.structs.replace(NO_REVIEW, levels=levels, digest="1" * 64)


POLICY = reviewed("pure")


@dataclass
class Desk:
    """A bench under a policy that wants reviews, and two reviewers."""

    bench: Bench
    keys: list[PrivateKey]
    named: list[Reviewer] = field(default_factory=list)

    def owner(self, name: str, role: tokens.Role = tokens.Role.REVIEWER) -> Owner:
        with self.bench.store.write() as connection:
            now = self.bench.clock()
            token = tokens.issue_token(connection, name, role, now)
            return tokens.find_owner(connection, token, now)

    def submit(self, key: str = "k1", x: int = 1, **fields: object) -> str:
        fields = {"arguments": encode({"x": x})} | fields
        task_id = run(self.bench.submit(key, **fields))
        self.run()
        return task_id

    def run(self) -> None:
        self.bench.server.pipeline.run_once()

    def task(self, task_id: str) -> TaskRow:
        with self.bench.store.read() as connection:
            found = rows.find_task(connection, task_id)
        assert found is not None
        return found

    def state(self, task_id: str) -> str:
        return str(self.bench.poll(task_id).state)

    def sign(self, task_id: str, *, by: int = 0, **changes: Any) -> bytes:
        spec = self.task(task_id).spec
        fields: dict[str, Any] = {
            "task_module": spec.task_module,
            "validator_module": spec.validator_module,
            "level": spec.level,
            "flavor": spec.flavor,
            "limits": spec.limits,
            "arguments": digest_arguments(spec.arguments, spec.blobs),
            "not_after": self.bench.clock() + 30 * DAY_S,
        }
        return sign_review(Review(**(fields | changes)), self.keys[by]).encode()

    def hand_in(self, task_id: str, text: bytes | None = None, **changes: Any) -> int:
        who = self.owner(str(changes.pop("who", "ann")))
        text = self.sign(task_id, **changes) if text is None else text
        released = self.bench.server.review_desk.submit(who, task_id, text)
        self.run()
        return released

    def statement(self, task_id: str, number: int = 1) -> Statement:
        return parse_statement(self.bench.statement(task_id, number))


def make_desk(folder: Path, policy: Policy = POLICY) -> Desk:
    """Return a desk among stand-ins in `folder`."""
    keys = [PrivateKey.generate(), PrivateKey.generate()]
    named = [Reviewer(key.public, name) for key, name in zip(keys, "ab", strict=True)]
    bench = make_bench(folder, policy=policy, reviewers=lambda: tuple(named))
    return Desk(bench, keys, named)
