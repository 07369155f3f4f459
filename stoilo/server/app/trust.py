"""What the project says now: its release, what is revoked, its policy, its epoch.

Whatever changes is in the log before anything here relies on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.core.errors import InternalError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.levels import load_levels
from stoilo.flavors.manifest import shipped_flavors
from stoilo.policies.levels import load_level
from stoilo.policies.policy import Policy, default_policy, parse_policy
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from stoilo.server.admission.outdated import Terms
from stoilo.server.log.leaves import LeafBook, log_changes
from stoilo.server.log.ports import ProjectFacts
from stoilo.server.release.changes import (
    facts_in_force,
    note_changes,
    read_transcript,
    revoked_keys,
)
from stoilo.server.release.flavors import choose_flavor, held_names, named_libraries
from stoilo.server.release.parts import (
    FlavorFiles,
    ReleasedLevels,
    kept_archives,
    offer_programs,
)
from stoilo.server.release.project import Project, Release
from stoilo.server.revocation.issuer import RevocationIssuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.audit.format.policy import LogPolicy
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.executor.verifier.trust import ReleaseFiles
    from stoilo.server.admission.draft import LevelLookup
    from stoilo.server.app.audit_log import AuditLog
    from stoilo.server.app.engine import ServedEngine
    from stoilo.server.db.store import Store


def load_policy(path: str) -> Policy:
    """Return the policy in `path`, the shipped one when empty."""
    return parse_policy(Path(path).read_bytes()) if path else default_policy()


class ProjectTrust:
    """The release and the revocations in force, asked for at every admission.

    Attributes:
        leaves: from the outbox into the log.
        release: the release, verified.
        revocations: the statement in force.
        facts: what statements say about the project now.
        levels: level by name.
        archives: id of a flavor → its archive as an input file, None for none.
    """

    def __init__(
        self,
        project: Project,  # whose release
        policy: Policy,  # that this server judges by
        store: Store,  # remembers what was in force before
        log: AuditLog,  # is told of every change
        engine: ServedEngine,  # gets the release, its archives and its programs
        *,
        wishes: Path,  # directory of wishes to withdraw something
        clock: Callable[[], int],  # seconds since 1970
        life_s: int,  # how long an admission holds, s
        refusal_interval_s: int,  # refusals are logged in batches of this time, s
    ) -> None:
        self._project = project
        self._policy = policy
        self._store = store
        self._log = log
        self._engine = engine
        self._clock = clock
        self._life_s = life_s
        self._platform = platform_name()
        # Of the release alone: revocations are themselves logged through these leaves.
        self.leaves = LeafBook(
            store,
            log.side,
            facts_of(self._released, clock, life_s),
            clock,
            refusal_interval_s,
        )
        self.leaves.refill()
        self.release = Release(project, engine, self._take_up)
        self.revocations = RevocationIssuer(
            wishes,
            log.writer,
            project.client,
            self.release.trust,
            clock,
            self.leaves.adopt,
        )
        # Before anything can be issued: volunteers refuse work without a fresh one.
        self.revocations.upkeep()
        self.facts = facts_of(self.revocations.in_force, clock, life_s)
        self.levels: LevelLookup = (
            ReleasedLevels(self.release.trust) if project.root.released else load_level
        )
        files = FlavorFiles(project.root.directory, self.release.trust, self._platform)
        self.archives = files.of

    def _released(self) -> TrustedRelease:
        # Bound late: the release needs the leaves before it is there itself.
        return self.release.trust()

    def _take_up(self, files: ReleaseFiles, trust: TrustedRelease) -> None:
        """Log what has changed with a newer release, then let the engine have it."""
        now, directory = self._clock(), self._project.root.directory
        in_force = facts_in_force(
            trust,
            files,
            now,
            policy_digest=self._policy.digest,
            levels=load_levels(),
            flavors=shipped_flavors(),
            transcript=read_transcript(directory),
        )
        if note_changes(self._store, in_force, now, revoked_keys(trust)):
            # `trust` itself: asking for the release would wait for this very call.
            facts = facts_of(lambda: trust, self._clock, self._life_s)
            log_changes(self.leaves, self._log.writer, facts)
        self._engine.retain(kept_archives(trust, self._platform))
        offer_programs(self._engine, directory, trust)

    def choose_flavor(self, wish: str, level: str, libraries: tuple[str, ...]) -> str:
        """Return the id of the flavor that a task gets."""
        return choose_flavor(wish, level, libraries, self.revocations.in_force())

    def held_libraries(self) -> tuple[str, ...]:
        """Return the import names of the libraries that flavors in force hold."""
        return held_names(self.revocations.in_force())

    def libraries_of(self, flavor: str, level: str) -> tuple[str, ...]:
        """Return the digests of a flavor's libraries that a task's admission names."""
        named = named_libraries(self.revocations.in_force())
        return named.get((flavor, level), ())

    def terms(self) -> Terms:
        """Return what volunteers accept at this moment."""
        return Terms.of(self.revocations.in_force())

    def log_policy(self) -> LogPolicy:
        """Return what volunteers demand of a log proof at this moment."""
        return self.release.trust().log_policy


def facts_of(
    trust: Callable[[], TrustedRelease], clock: Callable[[], int], life_s: int
) -> Callable[[], ProjectFacts]:
    """Return a function that says what statements say about the project now.

    The newest epoch that is open is used; its end bounds every admission. Where none is
    open, asking raises ``STO-K024``: tasks wait until the next one is certified.
    """

    def facts() -> ProjectFacts:
        release, now = trust(), clock()
        epoch = release.epoch_at(now, 1)
        if epoch is None:
            raise InternalError(
                "STO-K024",
                "no epoch is open now",
                hint="operators: stoilo explain STO-K024",
            )
        return ProjectFacts(
            origin=release.origin,
            epoch=epoch.number,
            epoch_end=epoch.not_after,
            language_digest=LANGUAGE_DIGEST,
            python=release.python,
            admission_life_s=life_s,
        )

    return facts
