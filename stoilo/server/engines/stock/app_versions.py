"""App versions of a stock project: launcher and verifier with the ceremony's signatures.

    apps/LEVEL/1.00/PLATFORM__PLAN_CLASS/stoilo_launcher_<16 digits>          and .sig
                                           stoilo_verifier_<16 digits>.tar      and .sig
                                           version.xml

``update_versions`` takes the signatures as they lie there and needs no private key. A
file's name is of its bytes, because BOINC's files never change under a name. The server
only looks whether they are there (`check_app_versions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.server.engines.programs import (
    API_VERSION,
    FIRST_VERSION,
    VERIFIER_OPEN_NAME,
    check_programs,
)
from stoilo.server.engines.stock.project.levels import plan_classes
from stoilo.server.engines.workunits import measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.core.boinc.xml import Element
    from stoilo.server.engines.programs import AppProgram, CodeSignKey


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """One app version that has to be there."""

    app: str  # the level
    number: int  # of the version, 100 for 1.00
    platform: str  # name of its directory: BOINC's platform and the plan class
    program: AppProgram  # what lies in it

    @property
    def path(self) -> str:
        """Return its directory, from the project's."""
        whole, rest = divmod(self.number, 100)
        return f"apps/{self.app}/{whole}.{rest:02d}/{self.platform}"


def version_xml(program: AppProgram) -> str:
    """Return the description that ``update_versions`` reads."""
    (launcher, _), (verifier, _) = program.files
    return (
        "<version>\n"
        f"  <file><physical_name>{launcher}</physical_name>"
        "<main_program/></file>\n"
        f"  <file><physical_name>{verifier}</physical_name>"
        f"<logical_name>{VERIFIER_OPEN_NAME}</logical_name></file>\n"
        f"  <api_version>{API_VERSION}</api_version>\n"
        "</version>\n"
    )


def new_versions(
    apps: Sequence[str],
    programs: Sequence[AppProgram],
    offered: Sequence[OfferedVersion],
    numbers: Mapping[str, int],  # app → the highest number that it has ever had
) -> tuple[VersionFolder, ...]:
    """Return the app versions that are not offered yet, under the next numbers.

    A number goes up for every app and never comes back; a program that is already the
    newest of its app and platform is left as it is.
    """
    newest = {(one.platform, one.plan_class): one.xml for one in offered}
    return tuple(
        VersionFolder(
            app,
            numbers.get(app, FIRST_VERSION - 1) + 1,
            f"{program.platform}__{name}",
            program,
        )
        for app in apps
        for program, name in product(programs, plan_classes(app))
        if not _runs(newest.get((program.platform, name), b""), program)
    )


def _runs(description: bytes, program: AppProgram) -> bool:
    """Whether an app version is a program: its signatures are over these files."""
    wanted = {_plain(one.signature) for _, one in program.files}
    return wanted <= signatures_in(description)


@dataclass(frozen=True, slots=True)
class OfferedVersion:
    """An app version in the database that is not deprecated."""

    app: str
    platform: str
    number: int  # 100 for 1.00
    plan_class: str  # empty for none
    xml: bytes  # its description, as the scheduler sends it


_OFFERED: Final = text(
    """SELECT app.name, platform.name, app_version.version_num,
 app_version.plan_class, app_version.xml_doc FROM app_version, app, platform
 WHERE app.id = app_version.appid AND platform.id = app_version.platformid
 AND app_version.deprecated = 0 ORDER BY app_version.version_num"""
)
_BOUNDS: Final = XmlBounds(65_536 + 32, depth=8, elements=2000)


def parse_description(xml: bytes) -> Element:
    """Return an app version's description below one element; raises `TrustError`."""
    return parse_xml(b"<x>" + xml + b"</x>", _BOUNDS)


def read_offered(connection: Connection) -> tuple[OfferedVersion, ...]:
    """Return the app versions that the scheduler sends out, oldest first."""
    return tuple(
        OfferedVersion(
            app,
            platform,
            int(number),
            plan or "",
            xml if isinstance(xml, bytes) else (xml or "").encode(),
        )
        for app, platform, number, plan, xml in connection.execute(_OFFERED)
    )


def check_signatures(programs: Sequence[AppProgram], key: CodeSignKey) -> None:
    """Check the release's programs as clients will; raises ``STO-E002``, ``STO-K076``."""
    files = [file for one in programs for _, file in one.files]
    try:
        measured = [measure(file.source, file.digest) for file in files]
    except OSError as error:
        raise InternalError(
            "STO-R030", f"a program's file cannot be read (errno {error.errno})"
        ) from error
    md5s = {digest: md5 for _, digest, md5 in measured}
    check_programs(programs, md5s, key)


def check_app_versions(
    connection: Connection, apps: Iterable[str], programs: Sequence[AppProgram]
) -> None:
    """Raise ``STO-B008`` unless every app's newest versions run `programs`.

    An app of `apps` that the project has not is not looked at.
    """
    there = {*connection.scalars(text("SELECT name FROM app"))}
    newest = {(one.app, one.platform): one.xml for one in read_offered(connection)}
    for app, program in product(there.intersection(apps), programs):
        if not _runs(newest.get((app, program.platform), b""), program):
            raise UsageError(
                "STO-B008",
                f"app {app} does not run the release's program on {program.platform}",
                hint="stoilo boinc install puts the release's app versions there",
            )


def signatures_in(description: bytes) -> frozenset[str]:
    """Return the signatures in an app version's description, empty for a broken one."""
    try:
        root = parse_description(description)
    except TrustError:
        return frozenset()
    texts = [one.find("file_signature") for one in root.every("file_info")]
    return frozenset(_plain(one.text) for one in texts if one is not None)


def _plain(signature: str) -> str:
    """Return a signature's digits without its line ends and final dot."""
    return "".join(signature.split()).rstrip(".")
