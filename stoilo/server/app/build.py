"""The parts of a running server, built in the order of trust and joined."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.policies.jailed import GATE_JOB, Gate
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.supervisor import Jail
from stoilo.server.app.audit_log import AuditLog, open_log
from stoilo.server.app.engine import WorkEngine, open_engine
from stoilo.server.app.task_server import Dependencies, TaskServer
from stoilo.server.app.trust import ProjectTrust
from stoilo.server.engines.workunits import parse_replication
from stoilo.server.log.sightings import Sightings
from stoilo.server.revocation.wishes import FOLDER
from stoilo.server.validation.validators import ValidatorJails

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from stoilo.policies.policy import Policy
    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.db.store import Store
    from stoilo.server.release.project import Project


@dataclass(frozen=True, slots=True)
class ServerParts:
    """One server without its network.

    Attributes:
        tasks: from a request to an outcome.
        work: the engine, and what stands around it.
        trust: release and revocations.
        log: the audit log.
    """

    tasks: TaskServer
    work: WorkEngine
    trust: ProjectTrust
    log: AuditLog


def clock() -> int:
    """Return the seconds since 1970."""
    return int(time.time())


def assemble(
    config: ServerConfig,
    home: DataDir,
    stack: AsyncExitStack,
    policy: Policy,
    project: Project,
    store: Store,
) -> ServerParts:
    """Open log, engine and jails, and wire them; `stack` closes them."""
    log = open_log(config.data, project, store, stack)
    # The gate in a jailed child of level pure, one warm zygote.
    gate_jail, jails = Jail(load_level("pure"), GATE_JOB), ValidatorJails()
    stack.callback(gate_jail.close)
    stack.callback(jails.close)
    work = open_engine(config, home, project.root.log_vkey)
    trust = ProjectTrust(
        project,
        policy,
        store,
        log,
        work.engine,
        wishes=home.part(FOLDER),
        clock=clock,
        life_s=config.admission_life_s,
        refusal_interval_s=config.refusal_interval_s,
    )
    around = Dependencies(
        log=log.writer,
        signer=project.client,
        engine=work.engine,
        judge=Gate(gate_jail),
        policy=policy,
        jail_of=jails.of,
        levels=trust.levels,
        flavors=trust.choose_flavor,
        facts=trust.facts,
        clock=clock,
        revocations=trust.revocations.current,
        terms=trust.terms,
        side=log.side,
        seen=Sightings(log.seen, trust.log_policy).record,
        archives=trust.archives,
        replication=parse_replication(config.homogeneous, config.adaptive).of,
    )
    tasks = TaskServer(
        store,
        home.part("blobs"),
        around,
        leaves=trust.leaves,
        review_wait_s=config.review_wait_s,
    )
    return ServerParts(tasks, work, trust, log)
