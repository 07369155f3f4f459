"""Whether a project is set up as `stoilo boinc install` leaves it, and is safe; pure."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.xml import Element, XmlBounds, parse_xml
from stoilo.core.errors import TrustError
from stoilo.server.engines.stock.checkup.snapshot import fail, ok, skip, warn
from stoilo.server.engines.stock.installation.config_rules import (
    Surroundings,
    correct_daemons,
    correct_settings,
)
from stoilo.server.engines.stock.installation.levels import (
    APPS,
    missing_plan_classes,
    plan_classes,
)
from stoilo.server.engines.stock.installation.plan import (
    CLOSED_KEYS,
    JOIN_CACHE,
    PRIVATE_KEY,
    SUBMIT_RPC,
)
from stoilo.server.engines.stock.installation.private_keys import KeySearch
from stoilo.signer.boinc_keys import check_boinc_signature, parse_boinc_public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import (
        AppReplication,
        CheckResult,
        Snapshot,
        VersionView,
    )


_INSTALL: Final = "run stoilo boinc install"
_QUORUM: Final = re.compile(
    r"<(min_quorum|target_nresults|max_error_results|max_total_results"
    r"|max_success_results)>"
)


def check_settings(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of config.xml which hazards are in it."""
    wrong = correct_settings(seen.config, Surroundings(seen.host))
    for one in wrong:
        value = seen.config.text(one.tag) or "not there"
        yield fail(f"setting {one.tag}", f"{value}: {one.why}", _INSTALL)
    if not wrong:
        yield ok("settings", "config.xml says what it must")
    for change in correct_daemons(seen.config, APPS):
        yield fail("daemon lines", change.why, f"{_INSTALL}: {change.becomes.cmd}")


def check_keys(seen: Snapshot) -> Iterator[CheckResult]:
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


def _private_keys(keys: KeySearch) -> Iterator[CheckResult]:
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


def check_modes(seen: Snapshot) -> Iterator[CheckResult]:
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


def check_plan_classes(seen: Snapshot) -> Iterator[CheckResult]:
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


def check_templates(seen: Snapshot) -> CheckResult:
    """Say whether a template silently replaces the researchers' redundancy."""
    wrong = [name for name, text in seen.templates.items() if _QUORUM.search(text)]
    if wrong:
        return fail(
            "templates",
            f"{', '.join(wrong[:5])}: a quorum in a template wins over the task's own",
            "delete the file: the engine writes it again",
        )
    return ok("templates", f"{len(seen.templates)} of ours, none with a quorum")


def check_submission(seen: Snapshot) -> Iterator[CheckResult]:
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


def check_entry_points(seen: Snapshot) -> Iterator[CheckResult]:
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


_BOUNDS: Final = XmlBounds(document_bytes=1024 * 1024, elements=1000)
_OLDEST_API: Final = 6
_CLASSES: Final = (
    "copies of a task go to machines of one kind only, and wait for these until the"
    " task's admission ends"
)
_OWN_WAYS: Final = "set it to 0 on the project's page for apps, or leave it knowingly"


def check_apps(seen: Snapshot) -> CheckResult:
    """Say whether each level is an app."""
    if seen.database.trouble:
        return skip("apps", "the database does not answer")
    missing = [app for app in APPS if app not in seen.database.apps]
    if missing:
        text = f"{', '.join(missing)} not in the database"
        return fail("apps", text, f"{_INSTALL}, or bin/xadd")
    return ok("apps", ", ".join(APPS))


def check_replication(seen: Snapshot) -> Iterator[CheckResult]:
    """Name what BOINC would do about copies beside what tasks ask for.

    Results are judged right all the same: by the quorum that the task asks for.
    """
    named = [one for one in seen.database.replications if one.app in APPS]
    for one in named:
        yield warn(f"replication {one.app}", "; ".join(_own_ways(one)), _OWN_WAYS)
    kind = seen.config.text("homogeneous_redundancy") or "0"
    if kind != "0":
        text = (
            f"homogeneous_redundancy {kind} in config.xml is for all apps: {_CLASSES}"
        )
        yield warn("replication", text, "take the setting out of config.xml")
    if not named and kind == "0" and not seen.database.trouble:
        yield ok("replication", "tasks alone say how many copies there are")


def _own_ways(one: AppReplication) -> Iterator[str]:
    """Say what an app's row makes of its tasks' copies."""
    if one.machine_classes:
        yield f"homogeneous_redundancy {one.machine_classes}: {_CLASSES}"
    if one.one_version:
        yield (
            "homogeneous_app_version: after a release, or where volunteers wish"
            " different things, a task's further copies wait for hosts of its first"
        )
    if one.target:
        yield (
            f"target_nresults {one.target}: BOINC makes more copies of a task of one copy"
            " than was asked for, by its own record of hosts"
        )


def check_versions(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of the newest version of each app and platform what is wrong with it."""
    if seen.database.trouble:
        yield skip("versions", "the database does not answer")
        return
    versions = [one for one in seen.database.versions if one.app in APPS]
    there = {one.plan_class for one in versions}
    classes = [(app, name) for app in APPS for name in plan_classes(app)]
    for app, name in classes:
        if name not in there:
            text = f"no app version for {name}: its tasks are never sent"
            yield fail(f"version {app}", text, f"{_INSTALL}, or bin/update_versions")
    for version in versions:
        name = f"version {version.plan_class or version.app} {version.platform}"
        wrong = tuple(_wrong(version, seen.code_sign_key))
        if wrong:
            yield fail(name, "; ".join(wrong), _INSTALL)
        else:
            yield ok(name, f"{version.number / 100:.2f}, signatures hold")


def _wrong(version: VersionView, key: str) -> Iterator[str]:
    if version.plan_class not in plan_classes(version.app):
        yield (
            f"plan class {version.plan_class or 'none'}:"
            " it would be sent to volunteers who did not choose its tasks"
        )
    try:
        root = parse_xml(b"<x>" + version.xml + b"</x>", _BOUNDS)
        yield from _wrong_description(root)
        for info in root.every("file_info"):
            yield from _wrong_file(info, version, key)
    except TrustError as error:
        yield f"its description cannot be read: {error.message}"


def _wrong_description(root: Element) -> Iterator[str]:
    described = root.find("app_version")
    if described is None:
        yield "its description has no <app_version>"
        return
    api = described.string("api_version").partition(".")[0]
    if not api.isdigit() or int(api) < _OLDEST_API:
        yield "without an API version clients share no memory file with the launcher"
    if not any(ref.flag("main_program") for ref in described.every("file_ref")):
        yield "none of its files is the main program"


def _wrong_file(info: Element, version: VersionView, key: str) -> Iterator[str]:
    name = info.string("name")
    size = version.sizes.get(name, -1)
    if size < 0:
        yield f"{name} is not in the download directory"
        return
    if size != info.integer("nbytes"):
        yield f"{name} has {size} bytes instead of {info.integer('nbytes')}"
    try:
        signature = info.string("file_signature", longest=4096)
        check_boinc_signature(
            version.md5s.get(name, ""), signature + "\n", parse_boinc_public(key)
        )
    except TrustError as error:
        yield f"clients will refuse {name}: {error.message}"
