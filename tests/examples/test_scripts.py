"""Every script runs without a server; what it claims, it asserts itself."""

import asyncio

import pytest

slow = pytest.mark.slow
SCRIPTS = {
    "checkpoints": (),
    "downpour": (),
    "dpbgd": slow,
    "large_minibatch": (),
    "local_rounds": (),
    "parameter_server": (),
    "robust_rules": slow,
    "sandblaster": (),
    "simulated_volunteers": (),
    "vcasgd": (),
}
DEPLOYED = {"low_level"}  # in test_deployed.py
BY_NOTEBOOK = {"architecture_search", "comparison"}  # their notebooks run their parts
SHARED = {"commandline", "digits", "resnet18"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks) for name, marks in SCRIPTS.items()]
)
def test_script_reaches_what_it_claims(example, name):
    asyncio.run(example("commandline").attend(example(name).main, None))


def test_every_script_is_run_by_a_test(folder):
    assert {path.stem for path in folder.glob("*.py")} - SHARED == {
        *SCRIPTS,
        *DEPLOYED,
        *BY_NOTEBOOK,
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
