"""The daemons that a project needs for us, and what their command lines must hold; pure.

Names of entry points are single words: of several, stock versions since July 2025 match
none (their ``split()`` keeps the separator), while the default for one word, the files, is
what ours expect. Sources: boinc.md §1.3, §2.1, §5.1 and §5.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.installation.configtext import Daemon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoilo.server.engines.stock.installation.configtext import ConfigText

__all__ = [
    "ASSIMILATE",
    "COMPARE",
    "VALIDATE",
    "DaemonChange",
    "correct_daemons",
    "wanted_daemons",
]

VALIDATE: Final = "stoilo_validate"
COMPARE: Final = "stoilo_compare"
ASSIMILATE: Final = "stoilo_assimilate"

_SLEEP: Final = ("--sleep_interval", "1")


@dataclass(frozen=True, slots=True)
class DaemonChange:
    """One daemon that has to be added or to become another.

    Attributes:
        was: as it stands there, None for one that is added.
        becomes: as it has to be.
        why: what goes wrong without, one sentence.
    """

    was: Daemon | None
    becomes: Daemon
    why: str


def wanted_daemons(apps: Sequence[str]) -> tuple[Daemon, ...]:
    """Return the daemons that judge and collect the results of `apps`.

    One program runs several times, so each has log, lock and pid files of its own.
    """
    made = []
    for app in apps:
        validator = (
            f"script_validator --app {app} --init_script {VALIDATE}"
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
    """Return how a daemon of BOINC's gets options that it lacks, None if it has them."""
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
    """Return options, each with the value behind it."""
    found: list[list[str]] = []
    for word in options:
        if word.startswith("-"):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def _correct_own(config: ConfigText, wanted: Daemon) -> DaemonChange | None:
    """Return how one of our daemons comes to be, None when it is there."""
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
    """Whether a daemon runs entry points of ours."""
    return any(
        daemon.value_of(option).startswith("stoilo_")
        for option in ("init_script", "compare_script", "script")
    )
