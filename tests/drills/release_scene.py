"""A throw-away project for the drills of release keys: three admins, a server, hosts.

The ceremonies are real: proposed, signed on copies with one key each, combined, reviewed
and published into a directory; hosts verify that directory. Only the paper is missing, and
the passphrases: keys lie in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from securesystemslib.signer import CryptoSigner, Signer

from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.ceremony.folder import Ceremony
from stoilo.signer.ceremony.key_holders import KeyHolder, RoleChange
from stoilo.signer.ceremony.proposal import Changes
from stoilo.signer.ceremony.publication import publish
from stoilo.signer.ceremony.requests import online_role
from stoilo.signer.ceremony.signatures import combine, signable
from stoilo.signer.offline_keys import OfflineKey
from stoilo.signer.release_directory import read_release
from stoilo.signer.repository import refresh_online_metadata
from tests.support.ceremony import CeremonyBench, new_key
from tests.support.metadata import NOTHING_INSTALLED

__all__ = ["ReleaseHost", "ReleaseScene"]

TOGETHER = ("root", "targets")
"""Roles of which each admin has one key, two of which must sign."""


class ReleaseScene:
    """The project.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "release"
        self.now = int(time.time())
        self._people = CeremonyBench(self.directory)
        self._keys = [key for keys in self._people.keys.values() for key in keys]
        self._named: dict[tuple[str, str], KeyHolder] = {}
        self._name(self._keys)
        self._finish(self._people.first(self.now), self._keys)
        self.root = (self.directory / "metadata" / "1.root.json").read_bytes()

    def key(self, name: str, role: str) -> OfflineKey:
        """Return the newest key of an admin for a role: his use of it, or a theft."""
        return next(one for one in reversed(self._keys) if _is(one, name, role))

    def online(self) -> Signer:
        """Return the server's key of snapshot and timestamp."""
        return CryptoSigner(self._people.online_key.key)

    def lose(self, name: str) -> None:
        """Let an admin's keys of root and targets vanish."""
        self._keys = [
            one for one in self._keys if one.name != name or one.role not in TOGETHER
        ]

    def replace(self, role: str, *names: str) -> str:
        """Replace admins' keys of a role in one ceremony; returns its refusal or "".

        Whoever still has a key signs. A replaced key signs this once more, if it is there.
        """
        out = tuple(self._named[name, role] for name in names)
        fresh = [new_key(role, name) for name in names]
        self._keys += fresh
        self._name(fresh)
        add = tuple(self._named[name, role] for name in names)
        return self.hold(Changes(keys=(RoleChange(role, out, add),)))

    def replace_online(self) -> str:
        """Replace the server's key of snapshot and timestamp; returns the refusal or ""."""
        old = online_role(self._people.online(self.now)).holders
        self._people.online_key = PrivateKey.generate()
        new = online_role(self._people.online(self.now)).holders
        roles = ("snapshot", "timestamp")
        return self.hold(
            Changes(keys=tuple(RoleChange(one, old, new) for one in roles))
        )

    def hold(self, changes: Changes) -> str:
        """Hold a ceremony with every key that is left; returns its refusal or ""."""
        try:
            self._finish(self._people.request(changes, self.now), self._keys)
        except StoiloError as error:
            return error.code
        return ""

    def refresh(self) -> None:
        """Let the server sign snapshot and timestamp, as it does by itself."""
        refresh_online_metadata(self.directory, self._people.online_key, self.now)

    def host(self, name: str) -> ReleaseHost:
        """Return a host that trusts the first root and has seen nothing yet."""
        return ReleaseHost(self.folder / "hosts" / name, self)

    def _name(self, keys: Iterable[OfflineKey]) -> None:
        """Remember the public half of each admin's newest keys."""
        for one in keys:
            holder = KeyHolder(one.name, one.ed25519().public)
            self._named[one.name, one.role] = holder

    def _finish(self, ceremony: Ceremony, keys: Iterable[OfflineKey]) -> None:
        """Sign one copy for each key, combine the copies, publish."""
        able = [
            one
            for one in keys
            if signable(ceremony.proposal, one.role, one.signer().public_key.keyid)
        ]
        copies = [self._people.sign(ceremony, [one]) for one in able] or [ceremony]
        publish(combine(copies), self.directory, self.now)
        self.refresh()


class ReleaseHost:
    """One volunteer's host: its root, its memory, its clock.

    Args:
        memory: its directory, kept between looks.
        scene: whose first root it trusts, and whose clock it shares.
    """

    def __init__(self, memory: Path, scene: ReleaseScene) -> None:
        self._memory, self._scene = memory, scene

    def look(self, directory: Path) -> str:
        """Return the code with which the host refuses the release, empty when it does not."""
        try:
            load_trust(
                read_release(directory),
                self._scene.root,
                self._scene.now,
                installed=NOTHING_INSTALLED,
                cache=self._memory,
            )
        except TrustError as error:
            return error.code
        return ""


def _is(key: OfflineKey, name: str, role: str) -> bool:
    return (key.name, key.role) == (name, role)
