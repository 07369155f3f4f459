"""What a stock project's config.xml must say for our tasks, and why; pure.

`make_project` writes defaults that are dangerous or slow here. Each rule names the hazard.
Names of our scripts are single words: of several, stock versions since July 2025 match
none (their ``split()`` keeps the separator), while the default for one word, the files, is
what ours expect. Sources: boinc.md §1.2, §1.3, §2.1, §5.1 and §5.4, measured on a stock
server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.project.config import Daemon
from stoilo.server.engines.stock.scripts.server import ASSIMILATE, CHECK, COMPARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stoilo.server.engines.stock.project.config import ConfigText


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about settings besides the file itself."""

    host: str  # short name of this machine, as ``bin/start`` compares it
    # results under way without an upload certificate: they could not be uploaded once
    # certificates are asked for
    uncertified: int = 0
    quick: bool = False  # hosts ask every few seconds: for few hosts, not for thousands


@dataclass(frozen=True, slots=True)
class Correction:
    """One setting that has to change."""

    tag: str  # of config.xml
    value: str  # that it gets
    why: str  # what goes wrong without, one sentence


# Value → what a setting must be for it: BOINC reads yes and no as "there, and not 0".
_HOLDS: Final[dict[str, Callable[[ConfigText, str], bool]]] = {
    "1": lambda config, tag: config.flag(tag),
    "0": lambda config, tag: not config.flag(tag),
    "": lambda config, tag: not config.text(tag),
}
# Setting → its value, and what goes wrong with another.
_ALWAYS: Final = {
    "dont_generate_upload_certificates": (
        "0",
        "without certificates anybody can write into the upload directory",
    ),
    "one_result_per_user_per_wu": (
        "1",
        "one volunteer could get both results of a workunit and agree with himself",
    ),
    "one_result_per_host_per_wu": (
        "1",
        "one computer could get both results of a workunit",
    ),
    "send_result_abort": (
        "1",
        "computers would go on with tasks that were cancelled",
    ),
    "resend_lost_results": (
        "1",
        "tasks of a computer that lost its state would wait for their deadline",
    ),
    # seen with the scheduler of August 2026
    "replace_download_url_by_timezone": (
        "",
        "the scheduler cuts descriptions off before their first URL: every task fails",
    ),
    "user_filter": (
        "0",
        "batches would name accounts, and reviewed tasks would go to nobody",
    ),
    "verify_files_on_app_start": (
        "1",
        "clients would check launcher and verifier only once, after the download",
    ),
    "cache_md5_info": (
        "1",
        "every file would be read again for every workunit that it belongs to",
    ),
}
# Looked at only once every result under way has a certificate.
_STRICT_UPLOADS: Final = {
    "ignore_upload_certificates": (
        "0",
        "upload certificates would be made and not looked at",
    ),
}
_QUICK: Final = (
    ("next_rpc_delay", 1, "an idle client would ask for work only every ten minutes"),
    (
        "min_sendwork_interval",
        0,
        "a client that asks again within seconds would be sent away",
    ),
    # chunks of a `map` are small
    (
        "daily_result_quota",
        100_000,
        "a computer would get no more work today after some hundred small tasks",
    ),
)


def correct_settings(
    config: ConfigText, around: Surroundings
) -> tuple[Correction, ...]:
    """Return what has to change in `config`, nothing where it is as it must be."""
    rules = _ALWAYS if around.uncertified else _ALWAYS | _STRICT_UPLOADS
    wrong = [
        Correction(tag, value, why)
        for tag, (value, why) in rules.items()
        if not _HOLDS[value](config, tag)
    ]
    if not config.text("db_host"):
        why = "make_project leaves white space here, which no database is called"
        wrong.append(Correction("db_host", "localhost", why))
    if config.text("host") != around.host:
        why = "bin/start finds no daemons when this is not the machine's short name"
        wrong.append(Correction("host", around.host, why))
    return (*wrong, *(_paces(config) if around.quick else ()))


def _paces(config: ConfigText) -> Iterator[Correction]:
    for tag, value, why in _QUICK:
        said = config.number(tag, default=-1)
        generous = tag == "daily_result_quota" and said > value
        if said != value and not generous:
            yield Correction(tag, str(value), why)


_SLEEP: Final = {"--sleep_interval": "1"}


@dataclass(frozen=True, slots=True)
class DaemonChange:
    """One daemon that has to be added or to become another."""

    was: Daemon | None  # as it stands there, None for one that is added
    becomes: Daemon  # as it has to be
    why: str  # what goes wrong without, one sentence


def wanted_daemons(apps: Sequence[str]) -> tuple[Daemon, ...]:
    """Return the daemons that judge and collect the results of `apps`.

    One program runs several times, so each has log, lock and pid files of its own.
    """
    made = []
    for app in apps:
        validator = f"--init_script {CHECK} --compare_script {COMPARE}"
        made += [
            _named("validator", app, validator),
            _named("assimilator", app, f"--script {ASSIMILATE}"),
        ]
    return tuple(made)


def _named(kind: str, app: str, scripts: str) -> Daemon:
    cmd = f"script_{kind} --app {app} {scripts} --sleep_interval 1 -d 3"
    name = f"stoilo_{kind}_{app}"
    return Daemon(cmd, f"{name}.log", f"{name}.pid", f"{name}.lock")


def correct_daemons(
    config: ConfigText, apps: Sequence[str]
) -> tuple[DaemonChange, ...]:
    """Return what has to change among the daemons of `config`."""
    general = (
        _correct(
            config,
            "feeder",
            {"--allapps": "", **_SLEEP},
            "jobs of one app that nobody can take would keep all others from being sent",
        ),
        _correct(
            config,
            "transitioner",
            _SLEEP,
            "every step of a workunit would wait five seconds",
        ),
        _correct(config, "file_deleter", {}, "files would stay for ever"),
    )
    ours = [_correct_own(config, daemon) for daemon in wanted_daemons(apps)]
    return tuple(change for change in (*general, *ours) if change is not None)


def _correct(
    config: ConfigText, program: str, options: Mapping[str, str], why: str
) -> DaemonChange | None:
    """Return how a daemon of BOINC's gets options that it lacks, None if it has them."""
    known = next((one for one in config.daemons if one.program == program), None)
    was = known or Daemon(f"{program} -d 3")
    words = list(was.words)
    for option, value in options.items():
        if not was.has(option.lstrip("-")):
            words += [option, value] if value else [option]
    becomes = replace(was, cmd=" ".join(words), disabled=False)
    if known is None:
        return DaemonChange(None, becomes, f"{program} is missing: {why}")
    if becomes.words == known.words and not known.disabled:
        return None
    return DaemonChange(known, becomes, why)


def _correct_own(config: ConfigText, wanted: Daemon) -> DaemonChange | None:
    app = wanted.value_of("app")
    known = next(
        (
            one
            for one in config.daemons
            if one.program == wanted.program
            and one.value_of("app") == app
            and _calls_us(one)
        ),
        None,
    )
    if known is not None and replace(known, host="") == wanted:
        return None
    becomes = wanted if known is None else replace(wanted, host=known.host)
    return DaemonChange(known, becomes, f"nobody would look at the results of {app}")


def _calls_us(daemon: Daemon) -> bool:
    return any(
        daemon.value_of(option).startswith("stoilo_")
        for option in ("init_script", "compare_script", "script")
    )
