"""What a stock project's config.xml must say for our tasks, and why; pure.

`make_project` writes defaults that are dangerous or slow here. Each rule names the hazard.
Names of our scripts are single words: of several, stock versions since July 2025 match
none (their ``split()`` keeps the separator), while the default for one word, the files, is
what ours expect. Sources: boinc.md §1.2, §1.3, §2.1, §5.1 and §5.4, measured on a stock
server.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.project.config import Daemon
from stoilo.server.engines.stock.script_server import ASSIMILATE, CHECK, COMPARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stoilo.server.engines.stock.project.config import ConfigText


# What a setting must be, and what goes wrong otherwise, one sentence.
Rule = tuple[str, str]
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
_QUICK: Final = {
    "next_rpc_delay": (
        "1",
        "an idle client would ask for work only every ten minutes",
    ),
    "min_sendwork_interval": (
        "0",
        "a client that asks again within seconds would be sent away",
    ),
    # chunks of a `map` are small
    "daily_result_quota": (
        "100000",
        "a computer would get no more work today after some hundred small tasks",
    ),
}


def correct_settings(
    config: ConfigText,
    host: str,  # short name of this machine, as ``bin/start`` compares it
    *,
    # results under way without an upload certificate: they could not be uploaded once
    # certificates are asked for
    uncertified: int = 0,
    quick: bool = False,  # hosts ask every few seconds: for few hosts, not for thousands
) -> dict[str, Rule]:
    """Return the settings of `config` that have to change, each to what and why."""
    rules = _ALWAYS if uncertified else _ALWAYS | _STRICT_UPLOADS
    wrong = {
        tag: (value, why)
        for tag, (value, why) in rules.items()
        if not _HOLDS[value](config, tag)
    }
    if not config.text("db_host"):
        why = "make_project leaves white space here, which no database is called"
        wrong["db_host"] = "localhost", why
    if config.text("host") != host:
        why = "bin/start finds no daemons when this is not the machine's short name"
        wrong["host"] = host, why
    for tag, (value, why) in _QUICK.items() if quick else ():
        said = config.number(tag, default=-1)
        generous = tag == "daily_result_quota" and said > float(value)
        if said != float(value) and not generous:
            wrong[tag] = value, why
    return wrong


_SLEEP: Final = {"--sleep_interval": "1"}
# A daemon as it stands there, None for one that is added; as it has to be; and why.
DaemonChange = tuple[Daemon | None, Daemon, str]


def wanted_daemons(apps: Sequence[str]) -> tuple[Daemon, ...]:
    """Return the daemons that judge and collect the results of `apps`.

    One program runs several times, so each has log, lock and pid files of its own.
    """
    scripts = {
        "validator": f"--init_script {CHECK} --compare_script {COMPARE}",
        "assimilator": f"--script {ASSIMILATE}",
    }
    made = []
    for app, (kind, options) in product(apps, scripts.items()):
        cmd = f"script_{kind} --app {app} {options} --sleep_interval 1 -d 3"
        name = f"stoilo_{kind}_{app}"
        made.append(Daemon(cmd, f"{name}.log", f"{name}.pid", f"{name}.lock"))
    return tuple(made)


# Daemon of BOINC's → options that it needs, and what goes wrong without.
_GENERAL: Final = {
    "feeder": (
        {"--allapps": "", **_SLEEP},
        "jobs of one app that nobody can take would keep all others from being sent",
    ),
    "transitioner": (_SLEEP, "every step of a workunit would wait five seconds"),
    "file_deleter": ({}, "files would stay for ever"),
}


def correct_daemons(config: ConfigText, apps: Sequence[str]) -> Iterator[DaemonChange]:
    """Yield what has to change among the daemons of `config`."""
    for program, (options, why) in _GENERAL.items():
        known = next((one for one in config.daemons if one.program == program), None)
        was = known or Daemon(f"{program} -d 3")
        words = list(was.words)
        for option, value in options.items():
            if not was.has(option.lstrip("-")):
                words += [option, value] if value else [option]
        becomes = replace(was, cmd=" ".join(words), disabled=False)
        if known is None:
            yield None, becomes, f"{program} is missing: {why}"
        elif becomes.words != known.words or known.disabled:
            yield known, becomes, why
    for wanted in wanted_daemons(apps):
        app = wanted.value_of("app")
        ours = (
            one
            for one in config.daemons
            if (one.program, one.value_of("app")) == (wanted.program, app)
            and _calls_us(one)
        )
        known = next(ours, None)
        becomes = wanted if known is None else replace(wanted, host=known.host)
        if known != becomes:
            yield known, becomes, f"nobody would look at the results of {app}"


def _calls_us(daemon: Daemon) -> bool:
    return any(
        daemon.value_of(option).startswith("stoilo_")
        for option in ("init_script", "compare_script", "script")
    )
