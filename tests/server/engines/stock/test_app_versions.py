from __future__ import annotations

import pytest

from stoilo.server.engines.stock.app_versions import (
    OfferedVersion,
    new_versions,
)
from stoilo.server.engines.stock.project.levels import plan_classes
from tests.support.programs import ProgramSigner

APPS = ("pure", "numeric")
SIGNER = ProgramSigner()
PROGRAM = SIGNER.program()


def offered(folders):
    """Return what update_versions makes of new versions."""
    found = []
    for one in folders:
        platform, plan_class = one.platform.split("__")
        xml = "".join(
            f"<file_info><file_signature>{file.signature}</file_signature></file_info>"
            for _, file in one.program.files
        )
        found.append(
            OfferedVersion(one.app, platform, one.number, plan_class, xml.encode())
        )
    return found


def versions(program, there=()):
    numbers = {one.app: one.number for one in there}
    return new_versions(APPS, [program], there, numbers)


def test_every_app_gets_the_program_on_its_platform():
    assert [one.path for one in versions(PROGRAM)] == [
        f"apps/{app}/1.00/x86_64-pc-linux-gnu__{name}"
        for app in APPS
        for name in plan_classes(app)
    ]


def test_same_program_makes_no_new_version():
    assert versions(PROGRAM, offered(versions(PROGRAM))) == ()


@pytest.mark.parametrize(
    "other", [SIGNER.program(b"new launcher"), ProgramSigner().program()]
)
def test_other_file_or_signature_makes_the_next_version(other):
    made = versions(other, offered(versions(PROGRAM)))
    assert {one.number for one in made} == {101}


def test_program_of_a_former_version_becomes_a_new_one():
    first = offered(versions(PROGRAM))
    second = offered(versions(SIGNER.program(b"bad"), first))
    third = versions(PROGRAM, [*first, *second])
    assert {one.number for one in third} == {102}
