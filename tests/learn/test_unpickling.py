"""No path of learning unpickles what a volunteer sent: by reading it, and by running it.

Below `tests/invariants` the same is looked at for the whole package; here the loaders are
looked for that unpickle without the word, and trainings run under an audit hook.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stoilo.learn
from stoilo.learn import METHODS

SOURCES = sorted(Path(stoilo.learn.__file__).parent.rglob("*.py"))
LOADERS = frozenset({"load", "loads", "fromfile", "memmap", "read_pickle", "Unpickler"})
OWNERS = frozenset({"torch", "np", "numpy", "jit", "pickle", "joblib", "pandas", "pd"})


def loaders(tree):
    """Yield the lines that call a library's loader of files or bytes of its own format."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in LOADERS:
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else None
            name = owner.id if isinstance(owner, ast.Name) else name
            if name in OWNERS:
                yield node.lineno


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_module_of_learning_loads_a_librarys_own_format(path):
    assert not list(loaders(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("line", ["torch.load(f)", "np.load(f)", "torch.jit.load(f)"])
def test_scan_would_notice_a_loader(line):
    assert list(loaders(ast.parse(line))) == [1]


HOOKED = """
import asyncio, itertools, sys
from pathlib import Path

from stoilo.core.codec import skeleton
from stoilo.core.codec.reader import DATA_BOUNDS
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.learn import SimulatedBackend, SimulatedHost, TrainerOptions, fit
from tests.support.liar import ENCODED_LIES, LIES, PICKLE, lie_about
from tests.support.points import WISHES, make_model, make_samples

names = itertools.cycle([*LIES, *ENCODED_LIES])

def lie(value):
    try:  # as the client does with what a server hands on
        encoded = lie_about(skeleton.encode(to_node(value)), next(names))
        return from_node(skeleton.decode(encoded, DATA_BOUNDS))
    except Exception as error:
        return PICKLE

async def train(method, folder):
    hosts = [SimulatedHost(), SimulatedHost(), SimulatedHost(cheat=lie, poll_s=0.01)]
    options = TrainerOptions(tasks=6, folder=folder)
    for epochs in (2, 3):  # the second one takes up what the first one saved
        given = {**WISHES[method], "epochs": epochs}
        place = SimulatedBackend(hosts)
        try:
            await fit(method, make_model(), make_samples(), place, options=options, **given)
        except Exception as error:  # another training's folder, for example
            assert "STO-T0" in str(error), error

noted = []
sys.addaudithook(lambda event, _: noted.append(event) if event == "pickle.find_class" else None)
for method in sys.argv[2:]:
    asyncio.run(train(method, Path(sys.argv[1]) / method))
    assert list((Path(sys.argv[1]) / method).iterdir())
if not sys.argv[2:]:  # the control
    import pickle
    pickle.loads(b"\\x80\\x04\\x8c\\x09fractions\\x8c\\x08Fraction\\x93K\\x01\\x85R.")
print(len(noted))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "count"), [*(([method], "0") for method in METHODS), ([], "1")]
)
def test_training_among_lies_saved_and_resumed_unpickles_nothing(
    tmp_path, methods, count
):
    done = subprocess.run(
        [sys.executable, "-c", HOOKED, str(tmp_path), *methods],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == count
