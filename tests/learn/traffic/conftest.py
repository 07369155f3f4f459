import pytest

from stoilo.learn.traffic import owner
from tests.support.traffic import Coordinator, Nodes


class Field:
    """Nodes and coordinators on loopback."""

    def __init__(self, folder, wait_until):
        self.folder, self.wait_until = folder, wait_until
        self.nodes, self.coordinators = Nodes(folder), []

    def lead(self, names, **options):
        folder = self.folder / f"coordinator{len(self.coordinators)}"
        self.coordinators.append(Coordinator(folder, names, **options))
        return self.coordinators[-1]

    def begin(self, count, **kinds):
        """Start nodes 'root', 'n1', … under one coordinator, some of a kind."""
        names = ["root", *(f"n{i}" for i in range(1, count + 1))]
        coordinator = self.lead(names)
        for name in names:
            self.nodes.start(name, coordinator, kind=kinds.get(name, ""))
        self.wait_until(lambda: len(coordinator.show(0).nodes) == len(names))
        return coordinator

    def publish(self, number, data, name="root"):
        return owner.give(self.nodes.place(name), number, data)

    def contribute(self, number, names, least=24):
        """Each gives a bit of its own: of a sum each bit says who is in it once.

        Least bytes of a segment: 8 makes three of a vector.
        """
        for index, name in enumerate(names):
            bits = (1 << index).to_bytes(8, "little")
            owner.give(self.nodes.place(name), number, bits * 3, (name,), least)

    def collect(self, number, names, wait_s=60.0):
        """Return whose contributions came, and the sum's bits."""
        item, data = owner.collect(self.nodes.place("root"), number, names, wait_s)
        assert data == data[:8] * 3, "each number of the vector is the same sum"
        return [*item.ids], int.from_bytes(data[:8], "little")

    def close(self):
        self.nodes.__exit__()
        for one in self.coordinators:
            one.kill()


@pytest.fixture
def field(tmp_path, wait_until):
    made = Field(tmp_path, wait_until)
    yield made
    made.close()


@pytest.fixture(scope="module")
def settled(tmp_path_factory, wait_until):
    """Root and seven nodes that live as long as a file's tests; numbers are each test's own."""
    made = Field(tmp_path_factory.mktemp("settled"), wait_until)
    made.begin(7)
    yield made
    made.close()
