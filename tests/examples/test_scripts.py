"""Every script runs without a server; what it claims, it asserts itself."""

import asyncio

import numpy as np
import pytest

slow = pytest.mark.slow
SCRIPTS = {
    "architecture_search": slow,
    "checkpoints": (),
    "comparison": slow,
    "data_and_fit": slow,
    "downpour": (),
    "dpbgd": slow,
    "language_model": slow,
    "large_minibatch": (),
    "local_rounds": (),
    "parameter_server": slow,
    "robust_rules": slow,
    "sandblaster": (),
    "simulated_volunteers": (),
    "vcasgd": (),
}
DEPLOYED = {"low_level"}  # in test_deployed.py
SIZED = {"resnet18", "cifar10"}  # with smaller images than its own, or fewer
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


@pytest.fixture
def cifar(tmp_path):
    """Return a folder with four images a file, in the layout of CIFAR-10's binary version."""
    for number, name in enumerate(["data_batch_1", "data_batch_2", "test_batch"]):
        records = np.random.default_rng(number).integers(0, 256, (4, 3073), np.uint8)
        records[:, 0] %= 10
        records.tofile(tmp_path / f"{name}.bin")
    return tmp_path


def test_cifar10_goes_on_where_it_stopped_and_draws_beside_the_thesis(example, cifar):
    script = example("cifar10")
    for epochs in (1, 2):  # the second call stands for another process's
        sizes = {"epochs": epochs, "steps": 1, "tasks": 2}
        asyncio.run(script.main(None, data=cifar, folder=cifar, **sizes))
    rows = script.read_progress(cifar / "progress.tsv")
    assert [row[0] for row in rows] == [1, 2]
    assert rows[0][1] < rows[1][1] + 1e-9
    assert "thesis: 77 %, 70 min" in (cifar / "progress.svg").read_text()


def test_cifar10_reads_images_and_labels_and_nothing_else(example, cifar):
    script = example("cifar10")
    images, labels = script.read_training(cifar).tensors
    assert (images.shape, labels.shape) == ((8, 3, 32, 32), (8,))
    (cifar / "test_batch.bin").write_bytes(b"\x80\x04pickle")
    with pytest.raises(SystemExit, match="no batch of CIFAR-10's binary version"):
        script.read_batch(cifar / "test_batch.bin")


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
