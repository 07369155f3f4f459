"""torchvision in the jail: real programs give plain CPython's very answers."""

from pathlib import Path

import pytest

from tests.support.libraries import check_program, programs_of

_PLAIN = ("stoilo.sandbox.libraries.torchvision",)  # torch as tasks have it, no façades


@pytest.mark.parametrize(("path", "name"), programs_of("torchvision"))
def test_a_program_gives_the_plain_answer(path: Path, name: str) -> None:
    check_program(path, name, _PLAIN)
