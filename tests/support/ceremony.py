"""A project's people with their keys, holding one ceremony after another.

Everything is real but the people: keys are not encrypted and lie in memory together, which
no ceremony ever does. Tests change one thing at a time and see the review refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import (
    BuilderFile,
    BuilderKey,
    EpochFile,
    PartFile,
)
from stoilo.policies.policy import default_policy
from stoilo.signer.attestations import BuildInputs, attestation_path, make_attestation
from stoilo.signer.ceremony.base_release import open_published
from stoilo.signer.ceremony.folder import Ceremony, CeremonyFile
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleSet
from stoilo.signer.ceremony.proposal import (
    Changes,
    NewTarget,
    first_proposal,
    next_proposal,
)
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import first_targets, online_role
from stoilo.signer.ceremony.signatures import sign_proposal, signable
from stoilo.signer.offline_keys import OfflineKey, PublicKeyFile, fingerprint
from stoilo.signer.process.online_keys import OnlineKeys
from stoilo.signer.repository import refresh_online_metadata
from tests.support.gate import INSTALLED

__all__ = ["DAY_S", "NOW", "ORIGIN", "CeremonyBench", "new_key"]

NOW = 1_800_000_000
DAY_S = 24 * 3600
ORIGIN = "project.example/log"
PEOPLE = ("ada", "ben", "cleo")


def new_key(role: str, name: str) -> OfflineKey:
    """Return a fresh key of `name` for `role`."""
    key = PrivateKey.generate()
    public = PublicKeyFile(role, name, key.public.raw.hex(), "")  # type: ignore[arg-type] # any role
    shown = PublicKeyFile(public.role, name, public.key, fingerprint(public))
    return OfflineKey(shown, key)


class CeremonyBench:
    """A project with three people a role, one where one suffices, and two builders.

    Args:
        directory: of the release; made by the first publication.
        rehearsal: whether the root is one of a staging project.
    """

    def __init__(self, directory: Path, *, rehearsal: bool = False) -> None:
        self.directory = directory
        self.rehearsal = rehearsal
        self.keys = {
            role: [new_key(role, name) for name in people]
            for role, people in {
                "root": PEOPLE,
                "targets": PEOPLE,
                "gate": PEOPLE[:1],
                "policy": PEOPLE[:1],
                "reviewers": PEOPLE[:1],
                "revocation": PEOPLE[:1],
            }.items()
        }
        self.builders = [new_key("builder", name) for name in PEOPLE[:2]]
        self.online_key = PrivateKey.generate()
        self.log_key = PrivateKey.generate()
        self.revocation_key = PrivateKey.generate()
        self.gate_keys = [PrivateKey.generate() for _ in range(2)]

    def at(self, directory: Path) -> CeremonyBench:
        """Return the same people with the release in another directory."""
        other = copy(self)
        other.directory = directory
        other.keys = {role: [*keys] for role, keys in self.keys.items()}
        return other

    def online(self, now: int = NOW) -> OnlineKeys:
        """Return what the server has made: its keys, and two epochs."""
        vkey = private_vkey(ORIGIN, KeyType.ED25519, self.log_key.key)
        return OnlineKeys(
            format="stoilo-online-keys/1",
            origin=ORIGIN,
            log_vkey=render_vkey(vkey),
            online=self.online_key.public.raw.hex(),
            revocation=self.revocation_key.public.raw.hex(),
            epochs=tuple(
                EpochFile(
                    epoch=number,
                    keys=(key.public.raw.hex(),),
                    threshold=1,
                    not_before=now + (number - 1) * 13 * DAY_S - 3600,
                    not_after=now + ((number - 1) * 13 + 28) * DAY_S,
                    max_per_minute=1000,
                )
                for number, key in enumerate(self.gate_keys, start=1)
            ),
        )

    def roles(self) -> dict[str, RoleSet]:
        """Return who holds which role."""
        roles = {
            role: RoleSet(
                tuple(KeyHolder(one.name, one.ed25519().public) for one in keys),
                2 if len(keys) > 1 else 1,
            )
            for role, keys in self.keys.items()
        }
        online = online_role(self.online())
        return roles | {"snapshot": online, "timestamp": online}

    def first(self, now: int = NOW, put: Sequence[NewTarget] = ()) -> Ceremony:
        """Return the first ceremony, unsigned."""
        own = first_targets(
            self.online(now),
            INSTALLED,
            witnesses=NO_WITNESSES,
            level_files={},
            policies=(default_policy(),),
            builders=BuilderFile(
                tuple(
                    BuilderKey(one.ed25519().public.raw.hex(), one.name)
                    for one in self.builders
                ),
                2,
            ),
        )
        targets = (*own, *put)
        about = CeremonyFile(origin=ORIGIN, rehearsal=self.rehearsal, created=now)
        return Ceremony(
            about, first_proposal(self.roles(), targets, now, rehearsal=self.rehearsal)
        )

    def request(self, changes: Changes, now: int = NOW) -> Ceremony:
        """Return an unsigned ceremony of `changes` on the published release."""
        current = open_published(self.directory)
        about = CeremonyFile(
            origin=ORIGIN, rehearsal=self.rehearsal, created=now, base=current.digest
        )
        return Ceremony(about, next_proposal(current, changes, now))

    def sign(
        self, ceremony: Ceremony, keys: Iterable[OfflineKey] | None = None
    ) -> Ceremony:
        """Return `ceremony` signed by `keys`, or by everybody who can."""
        known = [key for keys in self.keys.values() for key in keys]
        proposal = ceremony.proposal
        for key in known if keys is None else keys:
            if signable(proposal, key.role, key.signer().public_key.keyid):
                proposal = sign_proposal(proposal, key)
        return replace(ceremony, proposal=proposal)

    def attest(
        self,
        ceremony: Ceremony,
        part: PartFile,
        builders: Sequence[OfflineKey] | None = None,
    ) -> Ceremony:
        """Return `ceremony` with attestations that the builders built `part`."""
        made = {
            attestation_path(part, key.ed25519().public).removeprefix(
                "builds/"
            ): make_attestation(part, BuildInputs(), key.ed25519())
            for key in (self.builders if builders is None else builders)
        }
        builds = dict(ceremony.builds) | made
        return replace(ceremony, builds=tuple(sorted(builds.items())))

    def publish(self, ceremony: Ceremony, now: int = NOW) -> None:
        """Sign by everybody, publish, and sign snapshot and timestamp."""
        publish(self.sign(ceremony), self.directory, now)
        refresh_online_metadata(self.directory, self.online_key, now)
