"""Whether the project's app versions are what the release says clients are to run.

``stoilo boinc install`` puts them there, with the ceremony's signatures; the server only
looks. BOINC signs an app version's files, so equal signatures are equal files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import TrustError, UsageError
from stoilo.server.engines.stock import boinctables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from stoilo.server.engines.programs import AppProgram

__all__ = ["check_app_versions", "signatures_in"]

_BYTES: Final = 65_536
_BOUNDS: Final = XmlBounds(_BYTES + 32, depth=8, elements=2000)


def check_app_versions(
    connection: Connection, apps: Iterable[str], programs: Sequence[AppProgram]
) -> None:
    """Raise ``STO-B008`` unless every app's newest versions run `programs`.

    Args:
        connection: of the project's database.
        apps: names; one that the project has not is not looked at.
        programs: one for each platform.
    """
    for app in apps:
        for program in programs:
            found = _newest(connection, app, program.platform)
            if found is None:
                continue
            wanted = {
                _plain(program.launcher.signature),
                _plain(program.verifier.signature),
            }
            if not wanted <= signatures_in(found):
                raise UsageError(
                    "STO-B008",
                    f"app {app} does not run the release's program on"
                    f" {program.platform}",
                    hint="stoilo boinc install puts the release's app versions there",
                )


def signatures_in(description: bytes) -> frozenset[str]:
    """Return the signatures in an app version's description, empty for a broken one."""
    try:
        root = parse_xml(b"<app>" + description + b"</app>", _BOUNDS)
    except TrustError:
        return frozenset()
    infos = root.every("file_info")
    texts = [one.find("file_signature") for one in infos]
    return frozenset(_plain(one.text) for one in texts if one is not None)


def _plain(signature: str) -> str:
    """Return a signature's digits without its line ends and final dot."""
    return "".join(signature.split()).rstrip(".")


def _newest(connection: Connection, app: str, platform: str) -> bytes | None:
    """Return the newest version's description; None when the project has no such app."""
    apps, versions = boinctables.apps, boinctables.app_versions
    platforms = boinctables.platforms
    number = connection.scalar(select(apps.c.id).where(apps.c.name == app))
    if number is None:
        return None
    found = connection.scalar(
        select(versions.c.xml_doc)
        .join(platforms, platforms.c.id == versions.c.platformid)
        .where(
            versions.c.appid == number,
            versions.c.deprecated == 0,
            platforms.c.name == platform,
        )
        .order_by(versions.c.version_num.desc())
        .limit(1)
    )
    return found.encode() if isinstance(found, str) else bytes(found or b"")
