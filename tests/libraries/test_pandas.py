"""pandas: research programs give plain CPython's very answer, attacks are stopped."""

import pytest

from tests.support.libraries import check_program, programs_of


@pytest.mark.parametrize(("path", "name"), programs_of("pandas"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)
