"""Two servers, each with volunteers of its own: one training, the bits of one trainer."""

import asyncio
import sys
from contextlib import AsyncExitStack

import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.learn import NodeTraffic, Regions, fit
from stoilo.testing.deployment import Deployment
from tests.support.networkshard import NetworkShard
from tests.support.points import make_model
from tests.support.regions import (
    PARTS,
    WISHES,
    Net,
    beside,
    deal,
    make_region,
    run_regions,
    train,
)

pytestmark = pytest.mark.slow
SHARES = deal(2)


@pytest.fixture
def nodes(tmp_path):
    """A dispatcher, the root's node and one for each region, as operators start them."""
    started = {}

    def start(command, name, *more):
        program = (sys.executable, "-m", "stoilo", "learn", command)
        started[name] = NetworkShard(tmp_path / name, program, more)
        return started[name].folder

    names = ("root", *SHARES)
    hub = start("dispatcher", "hub", *(f"--node={name}" for name in names))
    for name in names:
        start("node", name, f"--dispatcher={hub / 'nodes' / name}.json")
    yield {
        name: NodeTraffic(started[name].folder / "connection.json") for name in names
    }
    for one in started.values():
        one.kill()


@pytest.fixture
def servers(tmp_path):
    """Return region → its server, which has two volunteers."""
    own = {name: Deployment(tmp_path / f"up-{name}", volunteers=2) for name in SHARES}
    with own["r0"], own["r1"]:
        yield own


def connect(server):
    journal = Journal(server.data.parent / f"{server.data.name}-journal")
    return stoilo.connect(server.line.connection, journal=journal)


async def in_the_middle(region, act):
    """Act once the region is at its third version."""
    seen = set()
    while len(seen) < 3:
        seen.add(region.method.number)
        await asyncio.sleep(0.01)
    await asyncio.to_thread(act)


async def train_at(nodes, servers, during):
    root = Regions(nodes["root"], SHARES)
    async with AsyncExitStack() as stack:
        conns = {
            name: await stack.enter_async_context(connect(one))
            for name, one in servers.items()
        }
        regions = [
            make_region(name, nodes[name], SHARES[name], conn)
            for name, conn in conns.items()
        ]
        serving = await stack.enter_async_context(run_regions(*regions))
        more = asyncio.create_task(in_the_middle(regions[1], during))
        trained = await beside(
            serving, fit("dpbgd", make_model(), PARTS, root, **WISHES)
        )
        await root.end()
        await asyncio.wait_for(asyncio.gather(*serving), 60.0)
        await more
    return trained, root


def test_regions_on_two_servers_train_as_one_though_a_server_is_killed(nodes, servers):
    def restart():
        servers["r1"].kill()
        servers["r1"].start()

    trained, root = asyncio.run(train_at(nodes, servers, restart))
    net = Net()
    alone = make_region("r0", net.node("r0"), range(len(PARTS)))
    exact = asyncio.run(train(net, deal(1), alone))
    for name, array in exact.snapshot.parameters.items():
        assert array.tobytes() == trained.snapshot.parameters[name].tobytes()
    assert root.missed == {}
