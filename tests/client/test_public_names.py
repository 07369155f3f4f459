from __future__ import annotations

import subprocess
import sys

import pytest

import stoilo
from stoilo.core.codebook import load_codebook

PROBE = """\
import sys, time
began = time.process_time()
import stoilo
took = time.process_time() - began
loaded = {name.split('.')[0] for name in sys.modules}
print(took, sorted(loaded & {'grpc', 'rich', 'numpy', 'torch', 'google', 'click'}))
"""


def test_importing_stoilo_is_quick_and_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
        ).stdout.split(" ", 1)
        for _ in range(3)
    ]
    assert min(float(took) for took, _ in runs) < 0.150
    assert {loaded.strip() for _, loaded in runs} == {"[]"}


@pytest.mark.parametrize("name", stoilo.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(stoilo, name)
    assert value is not None
    assert name in dir(stoilo)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError):
        _ = stoilo.nothing


def test_the_client_never_loads_server_code() -> None:
    program = (
        "import sys, stoilo.client.futures, stoilo.client.sync, stoilo.low_level\n"
        "print(sorted(name for name in sys.modules if name.startswith("
        "('stoilo.server', 'stoilo.signer', 'stoilo.executor', 'sqlalchemy', 'tuf'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_code_of_the_client_has_its_page() -> None:
    pages = {code for code in load_codebook() if code.startswith("STO-C")}
    assert {"STO-C010", "STO-C042", "STO-C050", "STO-C060"} <= pages


BASE_ONLY = """\
import sys
for name in ("numpy", "torch", "PIL", "safetensors"):
    sys.modules[name] = None  # as if it were not installed
import stoilo, stoilo.learn
print(stoilo.learn.__name__, "learn" in dir(stoilo), "fit" in dir(stoilo.learn))
try:
    {}
except stoilo.StoiloError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("use", "named"),
    [
        ("stoilo.ml", "stoilo.learn.DiLoCoTrainer needs"),
        ("from stoilo.ml import fit", "stoilo.learn.DiLoCoTrainer needs"),
        ("stoilo.ddl", "stoilo.learn.DiLoCoTrainer needs"),
        ("stoilo.learn.fit", "stoilo.learn.fit needs"),
        ("stoilo.connect_sync", ""),  # control: the client needs none of it
    ],
)
def test_missing_extra_is_named_where_training_is_asked_for(
    use: str, named: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BASE_ONLY.format(use)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, _, said = done.stdout.partition("\n")
    assert found == "stoilo.learn True True"
    assert said.startswith(named)
    assert ("numpy is missing) [STO-U002]: pip install 'stoilo[learn]'" in said) == (
        bool(named)
    )


def test_name_that_learning_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = stoilo.learn.nothing
