"""The fuzz target of programs, briefly, with a fixed seed and a hole as control."""

import dataclasses
import importlib.util
from pathlib import Path

import msgspec
import pytest

from stoilo.core.levels import ModuleRule
from stoilo.policies.levels import load_level


@pytest.fixture(scope="module")
def target():
    path = Path(__file__).with_name("fuzz_programs.py")
    spec = importlib.util.spec_from_file_location("fuzz_programs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fuzz_and_tell(target, programs, seed):
    ended, findings = target.fuzz(range(programs), seed)
    print(f"seed {seed}: {dict(ended)}")
    told = "\n\n".join(f"# {one.level}: {one.reason}\n{one.source}" for one in findings)
    assert findings == [], told
    return ended


def test_mutated_programs_do_not_reach_the_referee(target):
    ended = fuzz_and_tell(target, programs=200, seed=7)
    assert ended["ok"] + ended["user_error"] + ended["refused"] > 50


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_mutated_programs_do_not_reach_the_referee(target):
    ended = fuzz_and_tell(target, programs=1500, seed=3)
    assert ended["ok"] + ended["user_error"] + ended["refused"] > 500


def test_referee_sees_a_level_that_hands_out_files(target):
    pure = load_level("pure")
    hole = {"io": ModuleRule((*pure.modules["io"].names, "open", "FileIO"))}
    level = msgspec.structs.replace(pure, modules=pure.modules | hole)
    corpus = target.Corpus()
    corpus.add(
        "import io\ndef run(kwargs):\n    text = io.StringIO('a')\n    return text.read()",
        "pure",
    )
    _, findings = target.fuzz(range(200), 1, {"pure": level}, corpus)
    assert findings
    assert {one.reason.rpartition(" ")[2] for one in findings} == {"openat"}


def test_program_that_crashes_or_leaves_is_a_finding(target):
    with target.Ground.make() as ground:
        referee = target.Referee({"pure": load_level("pure")}, ground)
        outcome, reason = referee.run(
            "import itertools\ndef run(kwargs):\n    it = iter(())\n"
            "    for _ in range(300_000): it = itertools.chain(it)\n    return list(it)",
            "pure",
            dataclasses.replace(target.LIMITS, cpu_s=30, wall_s=120),
        )
        referee.close()
    assert (outcome.code, reason[:9]) == ("STO-S020", "STO-S020 ")
