"""Which engine a server runs on: the one place that knows there are two.

The embedded engine brings its own web face and volunteers on this machine; a stock project
has a web server of its own, and here only the log, the release and what is watched are
shown.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware

from stoilo.core.errors import UsageError
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.files.mirrors import parse_mirrors
from stoilo.server.engines.embedded.web.app import (
    HttpOptions,
    PathPrefix,
    create_project_app,
)
from stoilo.server.engines.embedded.web.people_pages import Front
from stoilo.server.engines.embedded.workunits.purge import Retention
from stoilo.server.engines.interface import Engine, MeasuredEngine
from stoilo.server.operations.volunteers import LocalVolunteers

if TYPE_CHECKING:
    from collections.abc import Collection

    from stoilo.server.config import ServerConfig
    from stoilo.server.data_directory import DataDir
    from stoilo.server.engines.embedded.files.holders import Nodes


class EngineName(StrEnum):
    """The setting ``engine``."""

    EMBEDDED = "embedded"
    STOCK = "stock"


class ServedEngine(Engine, MeasuredEngine, Protocol):
    """An engine as the server needs it."""

    def retain(self, digests: Collection[str]) -> None:
        """Keep input files of these digests between workunits."""
        ...


@dataclass(frozen=True, slots=True)
class WorkEngine:
    """The engine in use, and what stands around it."""

    engine: ServedEngine  # it
    embedded: EmbeddedEngine | None = None  # the same, None for a stock project
    master_url: str = ""  # of a stock project, empty for the embedded one

    def face(self, url: str, path: str, pages: str, front: Front) -> Starlette:
        """Return the web face to mount others on.

        Args:
            url: of this server, as it is reached.
            path: of `url`.
            pages: where pages for people are, empty without.
            front: what the front page tells; a stock project has one of its own.
        """
        if self.embedded is not None:
            options = HttpOptions(pages=pages, front=front)
            return create_project_app(self.embedded, url, options=options)
        return Starlette(middleware=[Middleware(PathPrefix, prefix=path)])

    def join(self, nodes: Nodes | None) -> None:
        """Let shared files spread over the project's own nodes, where there are some."""
        if nodes is not None and self.embedded is not None:
            self.embedded.join(nodes)

    def volunteers(
        self, count: int, home: DataDir, url: str, root_file: Path
    ) -> LocalVolunteers | None:
        """Return this machine's own volunteers, None where there can be none."""
        if self.embedded is None:
            return None
        return LocalVolunteers(count, home, self.embedded, url, root_file)


def open_engine(config: ServerConfig, home: DataDir, log_key: str = "") -> WorkEngine:
    """Open the engine of the settings.

    Args:
        config: the settings.
        home: the data directory.
        log_key: the audit log's verifier key: whose tasks a stock project runs.

    Raises:
        UsageError: ``STO-R090`` for settings that do not fit together; ``STO-B001``,
            ``STO-B095``.
        TrustError: ``STO-B001``.
        InternalError: ``STO-R030``, ``STO-R110``, ``STO-B095``.
    """
    _check(config)
    if config.engine == EngineName.STOCK:
        return _open_stock(config, log_key)
    embedded = EmbeddedEngine(
        home.part("engine"),
        database_url=config.engine_database_url,
        options=EngineOptions(
            spot_check_rate=config.spot_check_percent / 100,
            retention=Retention(workunit_days=config.keep_workunits_days),
            mirrors=parse_mirrors(config.mirrors),
        ),
    )
    return WorkEngine(embedded, embedded)


def _open_stock(config: ServerConfig, log_key: str) -> WorkEngine:
    # Forty modules that a server with the embedded engine has no use for.
    from stoilo.server.engines.stock import engine  # noqa: PLC0415 - measured
    from stoilo.server.engines.stock.project import (  # noqa: PLC0415 - measured
        database,
        directory,
    )

    project = directory.read_project(Path(config.project_dir))
    stock = engine.StockEngine(
        project,
        database_url=config.engine_database,
        owner=database.owner_name(log_key),
    )
    return WorkEngine(stock, master_url=project.config.text("master_url"))


_NOT_WITH_STOCK: Final = {
    "adaptive": "set adaptive replication in BOINC's own app",
    "homogeneous": "set homogeneous redundancy in BOINC's own app",
    "spot_check_percent": "a stock scheduler has no spot checks",
    "mirrors": "its scheduler has no mirrors that work: put a cache before download_url",
    "node": "its workunits name the same addresses to all hosts, from before a node has a file",
    "dispatcher": "its scheduler cannot order addresses by host",
    "keep_workunits_days": "BOINC's db_purge removes old rows",
}


def _check(config: ServerConfig) -> None:
    """Raise ``STO-R090`` for settings that only make sense with the other engine."""
    if config.engine not in set(EngineName):
        raise UsageError(
            "STO-R090",
            f"there is no engine {config.engine[:32]!r}",
            hint="engine is embedded or stock",
        )
    stock = config.engine == EngineName.STOCK
    problems = (
        (stock and not config.project_dir, "the stock engine needs project_dir"),
        (not stock and config.project_dir, "project_dir is for engine = stock"),
        (
            stock and config.volunteers,
            "volunteers of this machine attach by themselves",
        ),
    )
    for holds, problem in problems:
        if holds:
            raise UsageError("STO-R090", problem)
    for field in fields(config) if stock else ():
        instead = _NOT_WITH_STOCK.get(field.name)
        asked = getattr(config, field.name)
        if field.name == "spot_check_percent" and not asked:
            continue  # there are none, as asked
        # Refused rather than ignored: an operator would rely on it.
        if instead is not None and asked != field.default:
            raise UsageError(
                "STO-R090",
                f"{field.name} is the embedded engine's alone: {instead}",
                hint=f"remove {field.name} from the settings, or use engine = embedded",
            )
