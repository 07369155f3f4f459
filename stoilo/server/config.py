"""The server's configuration: one frozen record, loaded in one place.

Defaults < ``DIR/stoilo.toml`` < ``STOILO_*`` variables < flags. Unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import get_type_hints
from urllib.parse import urlsplit

from stoilo.core.errors import UsageError
from stoilo.core.listen import Address, parse_address
from stoilo.server.engines.embedded.files.mirrors import parse_mirrors
from stoilo.server.engines.workunits import parse_replication

EVERY_ONE = 100  # percent
DEFAULT_ORIGIN = "stoilo.local/development"
"""Name of a project whose operator chose none."""

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")
_PROJECT_URL = re.compile(
    r"https?://[A-Za-z0-9.\[\]:-]{1,100}/(?:[A-Za-z0-9][A-Za-z0-9._-]{0,39}/)*"
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of `stoilo up`.

    Attributes:
        data: the data directory.
        grpc: address of the researchers' interface (always TLS).
        http: address of the volunteers' interface.
        project_url: master URL as volunteers reach it, with final slash, when a proxy
            stands before this server; empty: what `http` is bound to.
        trusted_proxy: address of that proxy, whose ``X-Forwarded-For`` says who calls;
            empty: who calls is who connects.
        http_certificate: PEM file; needed unless `http` is a loopback address.
        http_key: PEM file of its key.
        tls_names: names in the gRPC certificate beyond the local ones, comma-separated.
        volunteers: local volunteers to run.
        engine: ``embedded``, or ``stock`` for a BOINC server's project.
        project_dir: directory of the stock project.
        watch: loopback address where /metrics, /healthz and /readyz need no token; empty
            = none, then /metrics needs an operator's token at `http`.
        database: SQLAlchemy URL, empty = SQLite in the data directory.
        engine_database: the same for workunits, results and accounts of volunteers; empty
            = where `database` says, each in a file of its own on SQLite.
        signer_socket: unix socket of a signer that runs as a user of its own; empty = the
            server starts one itself.
        origin: name of project and log, fixed at the first start.
        purpose: what is computed here and for whom, for the front page: plain text, an
            empty line parts paragraphs.
        policy: file of the project's policy, empty = the shipped one.
        log_policy: file that names the log's witnesses and their quorum, empty = none.
        admission_life_s: how long an admission holds, s.
        refusal_interval_s: refusals are logged in batches of this time, s.
        review_wait_s: how long a task may wait for a reviewer, s.
        homogeneous: levels whose results go to one class of host, as ``level=coarse`` or
            ``level=fine``, comma-separated.
        adaptive: levels for which a host with a record may work alone, comma-separated.
        spot_check_percent: share of results that hosts of accounts that you trust compute
            again; without such an account, and on a stock engine, none is. 0 = never.
        mirrors: data servers that hosts may have shared files from, as
            URLs with final slash, comma-separated.
        node: connection file of the project's own node on this machine, as `stoilo learn node`
            writes it: what tasks share spreads from there to all nodes; with `dispatcher`.
        dispatcher: connection file of `stoilo learn dispatcher`: it says which nodes have a
            file, and hosts fetch it there; the console shows its record. Empty = none.
        oidc_issuer: URL of an OpenID Connect provider who vouches for researchers in the
            console; empty = none. Needs the extra ``oidc``.
        oidc_client: what this server is called there (client id).
        oidc_secret_file: file of the client's secret, empty = a public client.
        oidc_claim: which claim is an account's name; ``email`` counts when it is verified.
        oidc_group: the group of accounts that are made for people whom the provider
            vouches for; empty = none are made, unknown people are refused.
        keep_workunits_days: how long rows of finished workunits and their results are
            kept; 0 = for ever. Tasks, outcomes, credit and the log are not among them.
    """

    data: Path
    grpc: str = "127.0.0.1:57010"
    http: str = "127.0.0.1:57080"
    project_url: str = ""
    trusted_proxy: str = ""
    http_certificate: str = ""
    http_key: str = ""
    tls_names: str = ""
    volunteers: int = 0
    engine: str = "embedded"
    project_dir: str = ""
    watch: str = ""
    database: str = ""
    engine_database: str = ""
    signer_socket: str = ""
    origin: str = DEFAULT_ORIGIN
    purpose: str = ""
    policy: str = ""
    log_policy: str = ""
    admission_life_s: int = 7 * 86_400
    refusal_interval_s: int = 60
    review_wait_s: int = 30 * 86_400
    homogeneous: str = ""
    adaptive: str = ""
    spot_check_percent: int = 2
    mirrors: str = ""
    node: str = ""
    dispatcher: str = ""
    oidc_issuer: str = ""
    oidc_client: str = ""
    oidc_secret_file: str = ""
    oidc_claim: str = "email"
    oidc_group: str = ""
    keep_workunits_days: int = 30

    @property
    def database_url(self) -> str:
        """Return the SQLAlchemy URL in force."""
        return self.database or f"sqlite:///{self.data / 'server.sqlite'}"

    @property
    def engine_database_url(self) -> str:
        """Return the SQLAlchemy URL of the engine's tables in force.

        The log's databases are always SQLite files: its sequencer rests on a flushed
        commit in each of two files on (best) two disks. One MariaDB would be one place,
        with one backup that could take both back in time together.

        Raises:
            UsageError: ``STO-R090`` where a MariaDB would begin empty beside the SQLite
                file that this project has used so far.
        """
        if self.engine_database:
            return self.engine_database
        file = self.data / "engine" / "engine.sqlite"
        if not self.database or self.database.startswith("sqlite"):
            return f"sqlite:///{file}"
        if file.exists():  # else the project's hosts and running work would be gone
            raise UsageError(
                "STO-R090",
                "workunits and volunteers' accounts lie in engine/engine.sqlite, not in "
                "the database of the settings",
                hint=f'keep them there with engine_database = "sqlite:///{file}", or move '
                "them: stoilo backup, then stoilo restore --database URL",
            )
        return self.database


def load_config(
    data: Path, flags: Mapping[str, object], environ: Mapping[str, str]
) -> tuple[ServerConfig, dict[str, str]]:
    """Return the configuration in force and where each value came from, by name.

    `flags` holds None for those not given. Raises ``STO-R090`` for an unknown key or a
    value of the wrong kind or without sense, for a bad address.
    """
    values: dict[str, object] = {}
    origins = dict.fromkeys(_kinds(), "default")
    layers: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("file", _read_file(data / "stoilo.toml")),
        ("environment", _read_environment(environ)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    )
    for origin, layer in layers:
        for name, value in layer.items():
            values[name] = _convert(name, value, origin)
            origins[name] = origin
    config = ServerConfig(data=data, **values)  # type: ignore[arg-type]  # converted
    _check_addresses(config)
    parse_replication(config.homogeneous, config.adaptive)
    if config.spot_check_percent > EVERY_ONE:
        raise UsageError("STO-R090", "setting spot_check_percent is at most 100")
    parse_mirrors(config.mirrors)
    if config.node and not config.dispatcher:
        raise UsageError("STO-R090", "setting node goes with dispatcher")
    _check_provider(config)
    return config, origins


def is_provider_url(url: str) -> bool:
    """Say whether a provider may be at `url`: https, or http on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    host = parts.hostname or ""
    local = parts.scheme == "http" and Address(host, 0).loopback
    return bool(host) and (parts.scheme == "https" or local)


def _check_provider(config: ServerConfig) -> None:
    """Raise ``STO-R090`` for a provider that cannot vouch for anybody."""
    if config.oidc_issuer and not is_provider_url(config.oidc_issuer):
        raise UsageError("STO-R090", "setting oidc_issuer is an https address")
    if bool(config.oidc_issuer) != bool(config.oidc_client) or not config.oidc_claim:
        raise UsageError(
            "STO-R090", "oidc_issuer goes with oidc_client and a claim, oidc_claim"
        )


def without_password(value: str | int) -> str | int:
    """Return a setting's value as it may be shown: of a database's URL no password."""
    return _PASSWORD.sub(r"\1:***", value) if isinstance(value, str) else value


def _check_addresses(config: ServerConfig) -> None:
    """Raise ``STO-R090`` or ``STO-B060`` for an address that cannot be what it is for."""
    for address in (config.grpc, config.http):
        parse_address(address)
    if config.project_url and not _PROJECT_URL.fullmatch(config.project_url):
        raise UsageError(
            "STO-R090",
            f"{config.project_url[:80]!r} is no project's URL",
            hint="like https://boinc.example.org/project/ , with the final slash",
        )
    try:  # a single address: nobody else may say who calls
        if config.trusted_proxy:
            ip_address(config.trusted_proxy)
    except ValueError as error:
        raise UsageError(
            "STO-R090",
            f"trusted_proxy {config.trusted_proxy[:80]!r} is no address",
            hint="like 127.0.0.1: from where the proxy connects",
        ) from error
    # Else figures would be shown to the network without a token.
    if config.watch and not parse_address(config.watch).loopback:
        raise UsageError(
            "STO-R090",
            f"watch = {config.watch[:80]!r} is not a loopback address",
            hint="leave it empty; Prometheus needs `stoilo account add --for metrics`",
        )


def _kinds() -> dict[str, type]:
    hints = get_type_hints(ServerConfig)
    names = [field.name for field in dataclasses.fields(ServerConfig)]
    return {name: hints[name] for name in names if name != "data"}


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError("STO-R090", f"stoilo.toml is not TOML: {error}") from error


def _read_environment(environ: Mapping[str, str]) -> dict[str, object]:
    prefix = "STOILO_SERVER_"
    return {
        key.removeprefix(prefix).lower(): value
        for key, value in environ.items()
        if key.startswith(prefix)
    }


def _convert(name: str, value: object, origin: str) -> object:
    kind = _kinds().get(name)
    if kind is None:
        raise UsageError(
            "STO-R090",
            f"unknown setting {name[:40]!r} in the {origin}",
            hint=f"the settings are {', '.join(sorted(_kinds()))}",
        )
    if kind is int and isinstance(value, str) and value.isdecimal():
        return int(value)
    if type(value) is not kind or (kind is int and int(str(value)) < 0):
        raise UsageError(
            "STO-R090", f"setting {name} in the {origin} must be a {kind.__name__}"
        )
    return value
