"""`stoilo learn traffic`, `dispatcher` and `node`: models between a project's own machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.cli.learn.parts import harden, serve
from stoilo.cli.output import FILE, FOLDER, JSON, render_day, render_table, say
from stoilo.core.errors import UsageError
from stoilo.learn.store.place import read_place
from stoilo.learn.traffic.agent import Agent
from stoilo.learn.traffic.coordinator import Coordinator
from stoilo.learn.traffic.holdings import KEPT_BYTES, KEPT_VERSIONS, Kept
from stoilo.learn.traffic.record import Event, Record, read_record
from stoilo.learn.traffic.topology import Tree, list_nodes, list_trees
from stoilo.learn.traffic.wire import MOST_KEPT

if TYPE_CHECKING:
    from stoilo.learn.traffic.face import VolunteerFace

_SHOWN = 3  # newest versions of a node
_GB, _MB, _MBIT = 1e9, 1e6, 125_000
_KEEP = click.option(
    "--keep",
    type=click.IntRange(1, MOST_KEPT),
    default=KEPT_VERSIONS,
    show_default=True,
    help="Versions, the newest; of a node also no more than --keep-gb.",
)
_NAMES = click.option(
    "--tls-name",
    "names",
    multiple=True,
    help="Name that the others use; needed to listen on all addresses.",
)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="Its directory.")
@click.option("--listen", default="127.0.0.1:57097", show_default=True)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    help="Name of a node: its connection file is DIR/nodes/NAME.json.",
)
@_KEEP
@_NAMES
@click.option(
    "--metrics", default="", help="Loopback host:port of /metrics, for Prometheus."
)
@JSON
def dispatcher(
    data: Path,
    listen: str,
    nodes: tuple[str, ...],
    names: tuple[str, ...],
    keep: int,
    metrics: str,
    *,
    as_json: bool,
) -> None:
    """Say which node fetches which model or sum from whom, by what was measured.

    Prints one JSON line when it answers. It may be killed at any moment and started again
    on the same directory and port; a second one takes over where the first is gone.
    """
    del as_json  # the line is JSON anyway; main renders errors
    harden()
    service = Coordinator(data.absolute(), listen, nodes, names, kept=keep)
    more = dict[str, str]()
    if metrics:
        # Its library comes with the extra `server`.
        from stoilo.learn.traffic.metrics import serve_metrics  # noqa: PLC0415

        more["metrics"] = serve_metrics(service, metrics)
    serve("dispatcher", service, data, **more)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The node's directory.")
@click.option("--listen", default="127.0.0.1:57098", show_default=True)
@click.option(
    "--dispatcher",
    "dispatchers",
    type=FILE,
    multiple=True,
    required=True,
    help="Its file for this node, DIR/nodes/NAME.json there; several stand by.",
)
@click.option(
    "--serve",
    "address",
    default="",
    help="host:port where volunteers get versions by digest; else nowhere.",
)
@click.option("--url", default="", help="The same as they reach it, with final slash.")
@click.option(
    "--certificate", default="", help="PEM file; --serve needs it off loopback."
)
@click.option("--key", default="", help="PEM file of its key.")
@click.option("--keep-gb", default=KEPT_BYTES / _GB, show_default=True)
@_KEEP
@_NAMES
@JSON
def node(
    data: Path,
    listen: str,
    dispatchers: tuple[Path, ...],
    names: tuple[str, ...],
    *,
    keep: int,
    keep_gb: float,
    address: str,
    url: str,
    certificate: str,
    key: str,
    as_json: bool,
) -> None:
    """Hold models and sums, fetch them from other nodes as told, and give them on.

    Prints one JSON line when it answers: address, the connection file for who publishes or
    collects here, and the URL for volunteers where there is one. It may be killed at any
    moment and started again.
    """
    del as_json  # as above
    harden()
    places = [read_place(file) for file in dispatchers]
    face = _open_face(address, url, certificate, key) if address else None
    kept = Kept(keep, int(keep_gb * _GB))
    own = face.url if face else ""
    agent = Agent(data.absolute(), listen, places, names, kept=kept, url=own)
    if face is not None:
        face.start(agent.holdings, agent.tell)
    serve("node", agent, data, **({"url": own} if own else {}))


def _open_face(*words: str) -> VolunteerFace:
    # A web server that a node without this has no use for.
    from stoilo.learn.traffic.face import VolunteerFace  # noqa: PLC0415

    return VolunteerFace(*words)


@click.command()
@click.argument("connection", type=FILE)
@click.option("--events", default=500, show_default=True, help="Of the newest.")
@click.option("--number", type=int, help="Version or round to draw, not the newest.")
@JSON
def traffic(
    connection: Path, events: int, number: int | None, *, as_json: bool
) -> None:
    """Show who sent what to whom, at which rates, and who is at fault.

    CONNECTION is the connection.json in the directory of `stoilo learn dispatcher`. The tree
    is that of the newest version or round: each node stands below whom it had it from, or
    whom its part went to.
    """
    record = read_record(read_place(connection), events)
    trees = [one for one in list_trees(record.events) if number in {None, one.number}]
    if number is not None and not trees:
        why = f"version or round {number} did not begin in the newest {events} events"
        raise UsageError("STO-R090", why, hint="give a larger --events")
    tree = trees[-1] if trees else None
    shown = msgspec.structs.asdict(record) | {"tree": tree}
    say(shown, _render(record, tree), as_json=as_json)


def _render(record: Record, tree: Tree | None) -> str:
    """Return tables of nodes, of rates, of what happened, in order, and the tree."""
    nodes = [("node", "address", "versions", "got_MB", "sent_MB", "at_fault")]
    for one in list_nodes(record):
        held, faults = [*map(str, one.versions)], ",".join(one.faults)
        figures = f"{one.got / _MB:.1f}", f"{one.gave / _MB:.1f}"
        shown = ",".join(held[-_SHOWN:]) or "-"
        shown = f"{len(held)}:..{shown}" if len(held) > _SHOWN else shown
        nodes.append((one.name, one.place or "gone", shown, *figures, faults or "-"))
    rates = [("from", "to", "Mbit/s")]
    rates += [(one, to, f"{rate / _MBIT:.1f}") for one, to, rate in record.rates]
    drawn = [_draw(tree)] if tree else []
    tables: list[Sequence[tuple[str, ...]]] = [nodes, rates]
    tables += [_list_events(record.events), *drawn]
    return "\n\n".join(render_table(table) for table in tables)


def _draw(tree: Tree) -> Sequence[tuple[str, ...]]:
    """Return a tree as lines, each indented below what it hangs from."""
    rows = [(tree.name, "after_s", "took_s", "Mbit/s")]
    for step in tree.steps:
        figures = f"{step.at:.3f}", f"{step.seconds:.3f}", f"{step.rate / _MBIT:.1f}"
        indented = "  " * step.depth + step.node
        rows.append((indented, *(figures if step.partner else ("", "", ""))))
    return [*rows, ("mean", f"{tree.mean_s:.3f}", "", "")]


def _list_events(events: list[Event]) -> Sequence[tuple[str, ...]]:
    rows = [
        ("time", "what", "number", "node", "from", "ids", "MB", "s", "Mbit/s", "why")
    ]
    for one in events:
        rate = f"{one.size / one.seconds / _MBIT:.1f}" if one.seconds else ""
        rows.append(
            (
                f"{render_day(int(one.at), '%H:%M:%S')}.{int(one.at % 1 * 1000):03}",
                one.what,
                str(one.number) if one.number >= 0 else "",
                one.node,
                one.sender,
                str(len(one.ids) or ""),
                f"{one.size / _MB:.3f}" if one.size else "",
                f"{one.seconds:.3f}" if one.seconds else "",
                rate,
                one.why,
            )
        )
    return rows
