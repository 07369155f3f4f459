"""Whether every level has a program that clients will accept; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.xml import Element, XmlBounds, parse_xml
from stoilo.core.errors import TrustError
from stoilo.server.engines.stock.checkup.findings import fail, ok, skip, warn
from stoilo.server.engines.stock.installation.levelapps import APPS, plan_classes
from stoilo.signer.boinc_keys import check_boinc_signature, parse_boinc_public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import (
        AppReplication,
        Finding,
        Snapshot,
        VersionView,
    )

__all__ = ["check_apps", "check_replication", "check_versions"]

_BOUNDS: Final = XmlBounds(document_bytes=1024 * 1024, elements=1000)
_OLDEST_API: Final = 6
_CLASSES: Final = (
    "copies of a task go to machines of one kind only, and wait for these until the"
    " task's admission ends"
)
_OWN_WAYS: Final = "set it to 0 on the project's page for apps, or leave it knowingly"
_INSTALL: Final = "run stoilo boinc install"


def check_apps(seen: Snapshot) -> Finding:
    """Say whether each level is an app."""
    if seen.database.trouble:
        return skip("apps", "the database does not answer")
    missing = [app for app in APPS if app not in seen.database.apps]
    if missing:
        text = f"{', '.join(missing)} not in the database"
        return fail("apps", text, f"{_INSTALL}, or bin/xadd")
    return ok("apps", ", ".join(APPS))


def check_replication(seen: Snapshot) -> Iterator[Finding]:
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


def check_versions(seen: Snapshot) -> Iterator[Finding]:
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
    """Yield what is wrong with one app version."""
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
    """Yield what is wrong with ``<app_version>``."""
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
    """Yield what is wrong with one file."""
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
