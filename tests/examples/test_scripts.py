"""Every script runs without a server; what it claims, it asserts itself."""

import asyncio

import pytest

slow = pytest.mark.slow
SCRIPTS = {
    "architecture_search": slow,
    "checkpoints": (),
    "comparison": slow,
    "data_and_fit": slow,
    "downpour": (),
    "dpbgd": slow,
    "large_minibatch": (),
    "local_rounds": (),
    "parameter_server": slow,
    "robust_rules": slow,
    "sandblaster": (),
    "simulated_volunteers": (),
    "vcasgd": (),
}
DEPLOYED = {"low_level"}  # in test_deployed.py
SIZED = {"resnet18"}  # with smaller images than its own
SHARED = {"commandline", "digits"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks) for name, marks in SCRIPTS.items()]
)
def test_script_reaches_what_it_claims(example, name):
    asyncio.run(example("commandline").attend(example(name).main, None))


@slow
def test_resnet18_learns_in_two_steps_on_tiny_images(example):
    asyncio.run(example("resnet18").main(None, steps=2, samples=16, size=16))


def test_resnet18_takes_its_sizes_from_the_command_line(example, monkeypatch):
    script, asked = example("resnet18"), []

    async def main(conn, **sizes):
        asked.append((conn, sizes))

    monkeypatch.setattr(script, "main", main)
    monkeypatch.setattr("sys.argv", ["resnet18.py", "--steps", "2", "--size", "16"])
    asyncio.run(script.attend())
    assert asked == [(None, {"steps": 2, "samples": 32, "size": 16})]


def test_every_script_is_run_by_a_test(folder):
    assert {path.stem for path in folder.glob("*.py")} - SHARED == {
        *SCRIPTS,
        *DEPLOYED,
        *SIZED,
    }


def test_command_line_names_the_connection_file(example, monkeypatch):
    asked = []

    async def main(conn):
        asked.append(conn)

    monkeypatch.setattr("sys.argv", ["vcasgd.py"])
    example("commandline").run(main, "text")
    assert asked == [None]


def test_command_line_says_what_is_wrong_with_the_file(example, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["x.py", "--connect", str(tmp_path / "none.json")])
    with pytest.raises(example("stoilo").StoiloError):
        example("commandline").run(example("vcasgd").main, "text")
