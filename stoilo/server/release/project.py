"""The project's release while the server runs: who signs it, and what it says now."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.witness.client import read_witnesses, with_log
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.levels import level_files
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.targets import InstalledRelease, TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles, load_trust
from stoilo.server.config import DEFAULT_ORIGIN
from stoilo.server.db import rows
from stoilo.server.release.released import (
    ServerTerms,
    check_certified,
    check_offline_roles,
    is_released,
)
from stoilo.signer.ceremony.release_status import read_roles
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.client import SignerClient, SignerProcess
from stoilo.signer.release_pack import pack_release, read_release

if TYPE_CHECKING:
    from stoilo.policies.policy import Policy
    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine


LOGGER = logging.getLogger(__name__)
RETRY_S = 2.0
REFRESH_S = 600.0
"""The release is verified again at least so often, s."""


@dataclass(frozen=True, slots=True)
class ProjectRoot:
    """Where the project's release lies, made here or published by a ceremony."""

    directory: Path  # the release's, also the signer's ``--keys``
    root_file: Path  # what local volunteers take as ``--root``
    origin: str  # the project and its log
    log_vkey: str  # the log's verifier key, text
    released: bool  # whether people signed it offline
    # where this server writes what the log says of the release; None: there
    proofs: Path | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """What the release and its processes are, once they run."""

    root: ProjectRoot  # where the release lies
    # the process that holds the online keys; None where somebody else keeps it alive
    signer: SignerProcess | None
    client: SignerClient  # asks it
    socket: Path  # where it listens
    installed: InstalledRelease  # levels and language layer of this package
    # the release's log policy, with the addresses of this server's own configuration
    witnesses: LogPolicy
    # what a released root must certify; None for a development root
    terms: ServerTerms | None = None

    def ensure_signer(self) -> None:
        """Start the signer again if it has died and is ours to start."""
        if self.signer is not None:
            self.signer.ensure()

    def check_certified(self, trust: TrustedRelease) -> None:
        """Raise ``STO-K094`` when a released root no longer certifies this server."""
        if self.terms is not None:
            check_certified(trust, self.terms)

    def trust(self) -> TrustedRelease:
        """Read and verify the release as a volunteer would."""
        return load_trust(
            read_release(self.root.directory),
            self.root.root_file.read_bytes(),
            int(time.time()),
            installed=self.installed,
        )


class Release:
    """The verified release, and the engine's copy of it, always of the newest metadata.

    Reviewers, revocations and epochs are published by other processes. A new timestamp
    is noticed by the file's time; what it names is noted for the log and goes out to
    volunteers before anything here relies on it.
    """

    def __init__(
        self,
        project: Project,  # whose release
        engine: Engine,  # gets every newer bundle
        # gets every newer release first, with its files, to log its keys
        record: Callable[[ReleaseFiles, TrustedRelease], None],
    ) -> None:
        self._project = project
        self._engine = engine
        self._record = record
        self._lock = threading.Lock()
        self._stamp = -1
        self._published = -1
        self._retry_at = 0.0
        self._at = 0.0
        self._trust: TrustedRelease | None = None
        self.trust()

    def trust(self) -> TrustedRelease:
        """Return the release, verified again when changed or older than `REFRESH_S`."""
        path = self._project.root.directory / "metadata" / "timestamp.json"
        with self._lock:
            self._notice_publication(path.parent)
            stamp, now = path.stat().st_mtime_ns, time.monotonic()
            if (
                self._trust is None
                or stamp != self._stamp
                or now - self._at > REFRESH_S
            ):
                files = read_release(self._project.root.directory)
                trust = self._project.trust()
                # Log first: no volunteer may see a release that the log does not tell of.
                self._record(files, trust)
                self._engine.set_release(pack_release(files))
                self._trust = trust
                self._stamp, self._at = stamp, now
            return self._trust

    def _notice_publication(self, metadata: Path) -> None:
        """Have a released root's new metadata named by snapshot and timestamp."""
        # Whoever publishes may have no right to the online keys. What is published by
        # halves is refused by the signer; then the release before it stays in force.
        stamp, now = metadata.stat().st_mtime_ns, time.monotonic()
        if (
            not self._project.root.released
            or stamp == self._published
            or now < self._retry_at
        ):
            return
        try:
            self._project.client.refresh_metadata()
        except StoiloError as error:
            LOGGER.warning("a publication cannot be used yet: %s", error)
            # Half a publication: its other half is on its way, or somebody must look.
            self._retry_at = now + RETRY_S
        else:
            self._published = metadata.stat().st_mtime_ns


def start_project(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    store: Store,
) -> Project:
    """Open the released root, or make or renew the development root; start its signer.

    Raises ``STO-K091``, ``STO-K093``, as `is_released`; ``STO-K094``, ``STO-K011`` what
    a released root lacks; the release's codes; ``STO-K020`` the signer did not start.
    """
    installed = installed_release()
    if is_released(home.path / "keys"):
        return _start_released(config, home, stack, policy, installed)
    return _start_development(config, home, stack, policy, store, installed)


def _start_development(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    store: Store,
    installed: InstalledRelease,
) -> Project:
    """Make or renew the development root."""
    # Its keys are made here, so its signer is started here (``STO-R090``). Policies of
    # attempts that are still open stay accepted: an admission holds until its end or its
    # revocation, whatever policy comes after.
    if config.signer_socket:
        raise UsageError(
            "STO-R090",
            "a development root's keys are made and held by the server itself",
            hint="publish a release first, or leave signer_socket empty",
        )
    # Else attempts admitted under yesterday's policy would be refused by volunteers.
    with store.read() as connection:
        earlier = rows.policies_in_use(connection)
    witnesses = read_witnesses(config.log_policy)
    made = create_development_root(
        home.part("keys"),
        config.origin,
        int(time.time()),
        installed=installed,
        policies=tuple({policy.digest: None, **dict.fromkeys(earlier)}),
        reviewed={
            policy.digest: [name for name in policy.levels if policy.needs_review(name)]
        },
        witnesses=witnesses,
        level_files=level_files(),
    )
    LOGGER.warning(
        "development root: its offline keys lie in %s; it protects nobody else",
        "DIR/keys",
    )
    root = ProjectRoot(
        made.directory, made.root_file, made.origin, made.log_vkey, released=False
    )
    signer, client, socket = _start_signer(home, stack, root.directory)
    policy_of_log = with_log(witnesses, root.log_vkey)
    return Project(root, signer, client, socket, installed, policy_of_log)


def _start_released(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    installed: InstalledRelease,
) -> Project:
    """Open a root that people signed offline; nothing is made but online metadata."""
    directory = home.part("keys")
    # Said before anything starts, in words of what to do.
    roles = read_roles(directory, int(time.time()))
    check_offline_roles(roles)
    witnesses = read_witnesses(config.log_policy)
    signer, client, socket = _start_signer(home, stack, directory, config.signer_socket)
    vkey = client.ping().log_vkey
    root_file = directory / "root.json"
    trust = load_trust(
        read_release(directory),
        root_file.read_bytes(),
        int(time.time()),
        installed=installed,
    )
    chosen = "" if config.origin == DEFAULT_ORIGIN else config.origin
    terms = ServerTerms(chosen, vkey, witnesses, policy)
    check_certified(trust, terms)
    # Where the signer is another user's, its directory is not ours to write.
    proofs = home.part("release") if config.signer_socket else None
    root = ProjectRoot(
        directory, root_file, trust.origin, vkey, released=True, proofs=proofs
    )
    mine = with_log(witnesses, vkey)
    return Project(root, signer, client, socket, installed, mine, terms)


def _start_signer(
    home: DataDir, stack: AsyncExitStack, directory: Path, socket: str = ""
) -> tuple[SignerProcess | None, SignerClient, Path]:
    """Connect to the signer at `socket`, which runs as a user of its own, or start one."""
    path = Path(socket) if socket else home.part("run") / "signer.sock"
    signer = None
    if not socket:
        signer = SignerProcess(directory, path)
        signer.start()
        stack.callback(signer.stop)
    # Who started another user's signer starts it again.
    client = SignerClient(path, revive=signer.ensure if signer else None)
    stack.callback(client.close)
    return signer, client, path
