"""What a project shares goes to its nodes, and real volunteers fetch it there."""

import hashlib
import random
from pathlib import Path

import pytest

from stoilo.learn.traffic.origin import Origin
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.traffic import DYING, SERVING
from tests.support.volunteers import VolunteerWorld

ARGUMENTS = WorkunitFile("arguments", hashlib.sha256(b"x").hexdigest(), b"x")


def make_model(seed):
    data = random.Random(seed).randbytes(1_000_000)
    return WorkunitFile("blob_000", hashlib.sha256(data).hexdigest(), data, sticky=True)


class Served:
    """An embedded project over HTTP, joined with the nodes of a field."""

    def __init__(self, folder, field, **kinds):
        self.dispatcher = field.begin(3, **kinds)
        self.wait_until = field.wait_until
        self.origin = Origin(field.nodes.place("root"), self.dispatcher.place)
        self.world = VolunteerWorld(folder, nodes=self.origin)

    def share(self, name, model):
        """Hand out a task with a model, and wait until some node is in use for it."""
        self.world.ask(name, files=(ARGUMENTS, model))
        self.wait_until(lambda: self.named(model))

    def named(self, model):
        mirrors = self.world.engine.mirrors
        return mirrors._good & self.origin.holders().urls.get(model.digest, frozenset())

    def lose(self, model):
        """Take the file from the project, so that it cannot come from there."""
        (Path(self.world.directory) / "engine" / "files" / model.digest).unlink()

    def close(self):
        self.world.close()


@pytest.fixture
def serve(tmp_path, field):
    made = []

    def start(**kinds):
        made.append(Served(tmp_path / "world", field, **kinds))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_volunteer_fetches_a_version_from_a_node_and_its_rate_is_known(serve):
    served, model = serve(n1=SERVING, n2=SERVING), make_model(1)
    served.share("w", model)
    served.lose(model)
    served.world.join("v")
    assert served.world.wait("w") == [OutcomeKind.CANONICAL]
    kept = list((served.world.directory / "v").rglob(model.digest))
    assert [p.stat().st_size for p in kept] == [len(model.source)]
    rates = served.wait_until(lambda: served.origin.holders().rates)
    assert {*rates} == {"127.0.0.0/24"}
    assert {*rates["127.0.0.0/24"]} <= {*served.origin.holders().urls[model.digest]}


def test_volunteer_whose_node_dies_in_the_middle_gets_the_rest_elsewhere(serve):
    served, model = serve(n1=DYING), make_model(2)
    served.share("w", model)
    served.world.join("v")
    assert served.world.wait("w") == [OutcomeKind.CANONICAL]
    served.wait_until(lambda: not served.origin.holders().urls[model.digest])
