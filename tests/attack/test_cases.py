"""Every attack of the corpus, with its control, and with its stopping layer off.

Benign cases: tests/sandbox/test_benign_programs.py, tests/sandbox/test_training_programs.py;
`make slow` runs them here too, as anybody's suite.
"""

import platform
from pathlib import Path

import pytest

from stoilo.sandbox.suite.case import find_cases, read_case
from stoilo.sandbox.suite.report import Result

CASES = Path(__file__).parent / "cases"
PATHS = {path.relative_to(CASES).with_suffix(""): path for path in find_cases(CASES)}
ATTACKS = [name for name in PATHS if not name.parts[0].startswith("benign")]
BENIGN = [name for name in PATHS if name.parts[0] in {"benign", "benign_numeric"}]


def check_case(runner, name):
    report = runner.run(read_case(PATHS[name], CASES))
    assert report.result is Result.AS_EXPECTED, report.describe()
    if not report.counted:
        pytest.skip("its control means something on other hosts only")


@pytest.mark.parametrize("name", ATTACKS, ids=str)
def test_attack_ends_as_its_header_says(runner, name):
    if name.parts[0] == "kernel" and platform.machine() != "x86_64":
        pytest.skip("names calls by x86-64 numbers")
    check_case(runner, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", BENIGN, ids=str)
def test_benign_program_does_what_plain_cpython_does(runner, name):
    check_case(runner, name)
