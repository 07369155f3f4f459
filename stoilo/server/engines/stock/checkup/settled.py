"""Whether a project is set up as `stoilo boinc install` leaves it, and is safe; pure."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.checkup.findings import fail, ok, warn
from stoilo.server.engines.stock.installation.daemons import correct_daemons
from stoilo.server.engines.stock.installation.levelapps import (
    APPS,
    missing_plan_classes,
)
from stoilo.server.engines.stock.installation.notes import (
    CLOSED_KEYS,
    JOIN_CACHE,
    PRIVATE_KEY,
    SUBMIT_RPC,
)
from stoilo.server.engines.stock.installation.privatekeys import KeySearch
from stoilo.server.engines.stock.installation.settings import (
    Surroundings,
    correct_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import Finding, Snapshot

__all__ = [
    "check_entry_points",
    "check_keys",
    "check_modes",
    "check_plan_classes",
    "check_settings",
    "check_submission",
    "check_templates",
]

_INSTALL: Final = "run stoilo boinc install"
_QUORUM: Final = re.compile(
    r"<(min_quorum|target_nresults|max_error_results|max_total_results"
    r"|max_success_results)>"
)


def check_settings(seen: Snapshot) -> Iterator[Finding]:
    """Say of config.xml which hazards are in it."""
    wrong = correct_settings(seen.config, Surroundings(seen.host))
    for one in wrong:
        value = seen.config.text(one.tag) or "not there"
        yield fail(f"setting {one.tag}", f"{value}: {one.why}", _INSTALL)
    if not wrong:
        yield ok("settings", "config.xml says what it must")
    for change in correct_daemons(seen.config, APPS):
        yield fail("daemon lines", change.why, f"{_INSTALL}: {change.becomes.cmd}")


def check_keys(seen: Snapshot) -> Iterator[Finding]:
    """Say whether a private signing key lies here, and whether uploads can be signed."""
    yield from _private_keys(seen.keys)
    if seen.upload_key is None:
        yield fail(
            "upload-key",
            "there is no private upload key: results have no upload certificates",
            "make a pair with BOINC's crypt_prog -genkey, in the key directory",
        )
    elif seen.upload_key & stat.S_IRWXO:
        yield warn(
            "upload-key",
            "everybody on this machine may read upload_private",
            "chmod 640 keys/upload_private",
        )
    else:
        yield ok("upload-key", "upload certificates can be made")


def _private_keys(keys: KeySearch) -> Iterator[Finding]:
    """Say whether a private code-sign key lies here, or that nobody could look."""
    owner = "run this as the project's owner or as root"
    if keys.found:
        text = PRIVATE_KEY.format(files=", ".join(keys.found))
        yield fail("private-key", text, "move the file off this machine")
    if keys.closed:
        text = CLOSED_KEYS.format(files=", ".join(keys.closed))
        yield fail("closed-keys", text, owner)
    if keys.unseen:
        text = f"not looked into for private keys: {', '.join(keys.unseen)}"
        yield warn("unseen-files", text, owner)
    if keys == KeySearch():
        yield ok("private-key", "no private code-sign key was found")


def check_modes(seen: Snapshot) -> Iterator[Finding]:
    """Say whether the web server may write where it has to, and read what it must not."""
    for name in ("download", "upload"):
        mode = seen.modes.get(name)
        needed = stat.S_ISGID | stat.S_IWGRP
        if mode is None or mode & needed != needed:
            said = "not there" if mode is None else f"{mode:o}"
            text = f"{name} is {said}: the web server could not write into it"
            yield fail(f"mode {name}", text, f"{_INSTALL}, or chmod 2775 {name}")
        else:
            yield ok(f"mode {name}", f"{mode:o}")
    if seen.closed_folders:
        named = ", ".join(seen.closed_folders[:5])
        text = (
            f"{len(seen.closed_folders)} below download ({named}) are closed to the web"
            " server: hosts get 403 and their tasks fail for good"
        )
        yield fail("mode download folders", text, "chmod 2775 download/*/")
    config = seen.modes.get("config.xml", 0)
    if config & stat.S_IRWXO:
        text = "everybody on this machine may read the database's password"
        yield warn("mode config.xml", text, "chmod 640 config.xml")


def check_plan_classes(seen: Snapshot) -> Iterator[Finding]:
    """Say whether levels above pure are held back from who did not choose them."""
    missing = missing_plan_classes(seen.plan_classes)
    if missing:
        text = f"{', '.join(missing)}: tasks would not be sent, or not held back"
        yield fail("plan classes", text, _INSTALL)
    else:
        yield ok("plan classes", "tasks are sent to who chose their level and kind")
    if not seen.preferences_page:
        text = "the preferences page is not ours: nobody can choose a level there"
        yield warn("preferences page", text, _INSTALL)


def check_templates(seen: Snapshot) -> Finding:
    """Say whether a template silently replaces the researchers' redundancy."""
    wrong = [name for name, text in seen.templates.items() if _QUORUM.search(text)]
    if wrong:
        return fail(
            "templates",
            f"{', '.join(wrong[:5])}: a quorum in a template wins over the task's own",
            "delete the file: the engine writes it again",
        )
    return ok("templates", f"{len(seen.templates)} of ours, none with a quorum")


def check_submission(seen: Snapshot) -> Iterator[Finding]:
    """Say whether jobs can come past the gate, and the database's known trap."""
    view = seen.database
    if view.trouble:
        return
    if view.submitters:
        text = SUBMIT_RPC.format(count=view.submitters)
        yield fail("submit-rpc", text, "delete the rows")
    if view.join_cache_level > 0:
        text = JOIN_CACHE.format(level=view.join_cache_level)
        yield fail("join-cache", text, "SET GLOBAL join_cache_level=0")
    else:
        yield ok("join-cache", "join_cache_level is 0")


def check_entry_points(seen: Snapshot) -> Iterator[Finding]:
    """Say whether BOINC's daemons reach the engine."""
    missing = [one.name for one in seen.entry_points if not one.present]
    closed = [
        one.name for one in seen.entry_points if one.present and not one.executable
    ]
    troubles = dict.fromkeys(one.trouble for one in seen.entry_points if one.trouble)
    if missing or closed or troubles:
        said = [f"missing: {', '.join(missing)}"] if missing else []
        said += [f"not executable: {', '.join(closed)}"] if closed else []
        said += [f"{text}; BOINC calls every result wrong" for text in troubles]
        yield fail("entry points", "; ".join(said), _INSTALL)
    else:
        yield ok("entry points", f"{len(seen.entry_points)} in bin")
    if seen.socket:
        yield fail(
            "socket",
            f"nothing answers the entry points: {seen.socket}; results wait",
            "start stoilo up --engine stock --project-dir PROJECT; where it runs, restart it",
        )
    else:
        yield ok("socket", "the server answers")
