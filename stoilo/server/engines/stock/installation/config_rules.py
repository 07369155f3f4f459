"""What a stock project's config.xml must say for our tasks, and why; pure.

`make_project` writes defaults that are dangerous or slow here. Each rule names the hazard.
Names of our scripts are single words: of several, stock versions since July 2025 match
none (their ``split()`` keeps the separator), while the default for one word, the files, is
what ours expect. Sources: boinc.md §1.2, §1.3, §2.1, §5.1 and §5.4, measured on a stock
server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.project.config import Daemon
from stoilo.server.engines.stock.scripts.server import ASSIMILATE, CHECK, COMPARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.server.engines.stock.project.config import ConfigText


# ``daily_result_quota`` of a quick project: chunks of a `map` are small.
TASKS_A_DAY: Final = 100_000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about settings besides the file itself."""

    host: str  # short name of this machine, as ``bin/start`` compares it
    # copies under way without an upload certificate: their results could not be
    # uploaded once certificates are asked for
    uncertified: int = 0
    quick: bool = False  # hosts ask every few seconds: for few hosts, not for thousands


@dataclass(frozen=True, slots=True)
class Correction:
    """One setting that has to change."""

    tag: str  # of config.xml
    value: str  # that it gets
    why: str  # what goes wrong without, one sentence


@dataclass(frozen=True, slots=True)
class _Rule:
    """A setting and the values that will do."""

    tag: str
    value: str
    why: str
    holds: Callable[[ConfigText, str], bool]


def _yes(config: ConfigText, tag: str) -> bool:
    return config.flag(tag)


def _no(config: ConfigText, tag: str) -> bool:
    return not config.flag(tag)


def _said(config: ConfigText, tag: str) -> bool:
    return bool(config.text(tag))


_ALWAYS: Final = (
    _Rule(
        "db_host",
        "localhost",
        "make_project leaves white space here, which no database is called",
        _said,
    ),
    _Rule(
        "dont_generate_upload_certificates",
        "0",
        "without certificates anybody can write into the upload directory",
        _no,
    ),
    _Rule(
        "one_result_per_user_per_wu",
        "1",
        "one volunteer could get both copies of a workunit and agree with himself",
        _yes,
    ),
    _Rule(
        "one_result_per_host_per_wu",
        "1",
        "one computer could get both copies of a workunit",
        _yes,
    ),
    _Rule(
        "send_result_abort",
        "1",
        "computers would go on with tasks that were cancelled",
        _yes,
    ),
    _Rule(
        "resend_lost_results",
        "1",
        "tasks of a computer that lost its state would wait for their deadline",
        _yes,
    ),
    _Rule(
        "replace_download_url_by_timezone",
        "",
        "the scheduler of August 2026 cuts each description off before its first URL"
        " then, and clients fail every task; put a cache before download_url instead",
        lambda config, tag: not config.text(tag),
    ),
    _Rule(
        "user_filter",
        "0",
        "batches would name accounts, and reviewed tasks would go to nobody",
        _no,
    ),
    _Rule(
        "verify_files_on_app_start",
        "1",
        "clients would check launcher and verifier only once, after the download",
        _yes,
    ),
    _Rule(
        "cache_md5_info",
        "1",
        "every file would be read again for every workunit that it belongs to",
        _yes,
    ),
)
_STRICT_UPLOADS: Final = _Rule(
    "ignore_upload_certificates",
    "0",
    "upload certificates would be made and not looked at",
    _no,
)
_QUICK: Final = (
    _Rule(
        "next_rpc_delay",
        "1",
        "an idle client would ask for work only every ten minutes",
        lambda config, tag: config.number(tag) == 1,
    ),
    _Rule(
        "min_sendwork_interval",
        "0",
        "a client that asks again within seconds would be sent away",
        lambda config, tag: config.number(tag) == 0,
    ),
    _Rule(
        "daily_result_quota",
        str(TASKS_A_DAY),
        "a computer would get no more work today after some hundred small tasks",
        lambda config, tag: config.number(tag) >= TASKS_A_DAY,
    ),
)


def correct_settings(
    config: ConfigText, around: Surroundings
) -> tuple[Correction, ...]:
    """Return what has to change in `config`, nothing where it is as it must be."""
    rules = [*_ALWAYS, _host_rule(around.host)]
    if around.uncertified == 0:
        rules.append(_STRICT_UPLOADS)
    if around.quick:
        rules += _QUICK
    return tuple(
        Correction(rule.tag, rule.value, rule.why)
        for rule in rules
        if not rule.holds(config, rule.tag)
    )


def is_quick(config: ConfigText) -> bool:
    """Whether the file says what `Surroundings.quick` asks for."""
    return all(rule.holds(config, rule.tag) for rule in _QUICK)


def _host_rule(host: str) -> _Rule:
    return _Rule(
        "host",
        host,
        "bin/start finds no daemons when this is not the machine's short name",
        lambda config, tag: config.text(tag) == host,
    )


_SLEEP: Final = ("--sleep_interval", "1")


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
        validator = (
            f"script_validator --app {app} --init_script {CHECK}"
            f" --compare_script {COMPARE} {' '.join(_SLEEP)} -d 3"
        )
        assimilator = (
            f"script_assimilator --app {app} --script {ASSIMILATE}"
            f" {' '.join(_SLEEP)} -d 3"
        )
        made += [_named(validator, f"stoilo_validator_{app}")]
        made += [_named(assimilator, f"stoilo_assimilator_{app}")]
    return tuple(made)


def _named(cmd: str, name: str) -> Daemon:
    return Daemon(cmd, f"{name}.log", f"{name}.pid", f"{name}.lock")


def correct_daemons(
    config: ConfigText, apps: Sequence[str]
) -> tuple[DaemonChange, ...]:
    """Return what has to change among the daemons of `config`."""
    general = (
        _correct(
            config,
            "feeder",
            ("--allapps", *_SLEEP),
            "jobs of one app that nobody can take would keep all others from being sent",
        ),
        _correct(
            config,
            "transitioner",
            _SLEEP,
            "every step of a workunit would wait five seconds",
        ),
        _correct(config, "file_deleter", (), "files would stay for ever"),
    )
    ours = [_correct_own(config, daemon) for daemon in wanted_daemons(apps)]
    return tuple(change for change in (*general, *ours) if change is not None)


def _correct(
    config: ConfigText, program: str, options: Sequence[str], why: str
) -> DaemonChange | None:
    known = next((one for one in config.daemons if one.program == program), None)
    if known is None:
        line = " ".join((program, "-d 3", *options))
        return DaemonChange(None, Daemon(line), f"{program} is missing: {why}")
    words: list[str] = list(known.words)
    for pair in _pairs(options):
        if not known.has(pair[0].lstrip("-")):
            words += pair
    becomes = replace(known, cmd=" ".join(words), disabled=False)
    if tuple(words) == known.words and not known.disabled:
        return None
    return DaemonChange(known, becomes, why)


def _pairs(options: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = []
    for word in options:
        if word.startswith("-"):
            found.append([word])
        else:
            found[-1].append(word)
    return found


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
