"""Fixing an attempt's statement: the bytes that log, signer and volunteers see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.core.statement import (
    CODEC_VERSION,
    LIBRARIES,
    Statement,
    make_nonce,
    parse_statement,
    render_statement,
    statement_digest,
)
from stoilo.server.db.records import NO_REVIEWS, Reviews
from stoilo.server.log.public_records import submitter_commitment

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.server.admission.draft import LevelLookup, LibraryLookup
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.log.ports import ProjectFacts


class StatementWriter:
    """Writes statements.

    Attributes:
        facts: what statements say now; asked once for all of one batch, because epochs
            change.
    """

    def __init__(
        self,
        facts: Callable[[], ProjectFacts],
        levels: LevelLookup,
        salt_of: Callable[[int], str],
        libraries: LibraryLookup = lambda _flavor, _level: (),
    ) -> None:
        self.facts = facts
        self._levels = levels
        self._salt_of = salt_of
        self._libraries = libraries

    def seal(
        self,
        task: TaskRow,
        attempt: AttemptRow,
        policy_digest: str,
        now: int,
        facts: ProjectFacts,
        reviews: Reviews = NO_REVIEWS,
    ) -> AttemptRow:
        """Return `attempt` with statement, leaf, policy and times fixed.

        The admission ends when the reviews that it stands on end.

        Raises:
            TrustError: the statement would not parse on the other side.
        """
        not_after = min(now + facts.admission_life_s, facts.epoch_end)
        not_after = min(not_after, reviews.not_after or not_after)
        times = (now, not_after)
        statement = self._statement(task, attempt.number, facts, policy_digest, times)
        if reviews.texts:
            statement = msgspec.structs.replace(statement, reviewers=reviews.texts)
        payload = render_statement(statement)
        leaf = Leaf(
            LeafKind.ADMISSION, statement_digest(payload), str(facts.epoch), now
        )
        return msgspec.structs.replace(
            attempt,
            statement=payload,
            leaf=render_leaf(leaf),
            policy_digest=policy_digest,
            admitted_at=now,
            not_after=not_after,
        )

    def is_current(self, attempt: AttemptRow) -> bool:
        """Whether a sealed attempt names the epoch that is current now."""
        return parse_statement(attempt.statement or b"").epoch == self.facts().epoch

    def _statement(
        self,
        task: TaskRow,
        number: int,
        facts: ProjectFacts,
        policy_digest: str,
        times: tuple[int, int],
    ) -> Statement:
        spec = task.spec
        libraries = self._libraries(spec.flavor, spec.level)
        return Statement(
            origin=facts.origin,
            nonce=make_nonce(),
            task_id=task.task_id,
            attempt=number,
            entry=spec.entry,
            map_items=spec.map_items,
            task_module=spec.task_module,
            validator_module=spec.validator_module,
            arguments=spec.arguments,
            blobs=spec.blobs,
            flavor=spec.flavor,
            level=spec.level,
            level_digest=self._levels(spec.level).digest,
            policy_digest=policy_digest,
            language_digest=facts.language_digest,
            python=facts.python,
            codec=CODEC_VERSION,
            limits=spec.limits,
            redundancy=spec.redundancy,
            seed=make_nonce(),
            submitter=submitter_commitment(self._salt_of(task.account_id)),
            admitted_at=times[0],
            not_after=times[1],
            epoch=facts.epoch,
            public_source=spec.publish_source,
            libraries=libraries,
            topics=spec.topics,
            critical=(LIBRARIES,) if libraries else (),
        )
