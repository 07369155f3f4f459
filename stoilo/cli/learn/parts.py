"""`stoilo learn shard`, `cell` and `plan`: what trainings need beside a project."""

from __future__ import annotations

import importlib
import json
import math
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from stoilo.cli.output import FOLDER, JSON, render_table, say
from stoilo.core.errors import UsageError
from stoilo.core.listen import parse_address
from stoilo.learn.cells.member import CellMember, check_private
from stoilo.learn.cells.planning import (
    Level,
    Plan,
    Rules,
    plan_copies,
    plan_stages,
)
from stoilo.learn.store.network import ShardService
from stoilo.learn.store.place import CONNECTION_FILE, ShardPlace

if TYPE_CHECKING:
    from torch import nn


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The shard's directory.")
@click.option(
    "--listen",
    default="127.0.0.1:57095",
    show_default=True,
    help="host:port (0 = any).",
)
@click.option(
    "--tls-name",
    "names",
    multiple=True,
    help="Name that clients use; needed to listen on all addresses.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A project's connection.json: values become its blobs, for tasks to name.",
)
@JSON
def shard(
    data: Path,
    listen: str,
    names: tuple[str, ...],
    project: Path | None,
    as_json: bool,
) -> None:
    """Keep values and vectors of trainings for who has the connection file.

    Prints one JSON line when it answers: address and connection file. It may be killed
    at any moment and started again on the same directory and port. Ctrl-C and SIGTERM
    end it.
    """
    del as_json  # the line is JSON anyway; main renders errors
    harden()
    service = ShardService(data.absolute(), listen, names, project)
    serve("shard", service, data)


@click.command()
@click.option("--data", type=FOLDER, required=True, help="The member's directory.")
@click.option("--rank", type=click.IntRange(min=0), help="Its place among --peers.")
@click.option(
    "--peers",
    default="",
    help="host:port of all members, by rank, with commas: the only cell it may be in.",
)
@click.option(
    "--listen",
    default="",
    help="host:port, of trainers and of links; by default the one among --peers.",
)
@click.option(
    "--private-network",
    "is_private",
    is_flag=True,
    help="Only the cell's machines are on this network: links are not encrypted.",
)
@JSON
def cell(
    data: Path,
    rank: int | None,
    peers: str,
    listen: str,
    is_private: bool,
    as_json: bool,
) -> None:
    """Be a member of a cell for who has the connection file.

    Prints one JSON line when it answers: address and connection file. It may be killed
    at any moment and started again on the same directory and port: the cell forms anew.
    Ctrl-C and SIGTERM end it.
    """
    del as_json  # as above
    addresses = [one.strip() for one in peers.split(",") if one.strip()]
    if bool(addresses) == (rank is None) or (rank or 0) >= max(1, len(addresses)):
        raise UsageError("STO-R090", "--rank names one of --peers, from 0 on")
    own = addresses[rank] if rank is not None else listen
    check_private([*addresses, listen or own], is_private=is_private)
    harden()
    folder, host = data.absolute(), parse_address(own).host
    service = CellMember(folder, listen or own, names=(host,), peers=addresses)
    serve("cell", service, data)


def harden() -> None:
    """Leave no dump of what a server holds, and end on Ctrl-C and SIGTERM."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold the parameters
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


class _Service(Protocol):
    place: ShardPlace

    def run(self) -> None: ...
    def close(self) -> None: ...


def serve(what: str, service: _Service, data: Path, **more: str) -> None:
    """Say in a JSON line where a service is, what opens it, and more; and be it."""
    try:
        file = str(data.absolute() / CONNECTION_FILE)
        line = {what: service.place.shard, "connection": file, **more}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        service.run()
    finally:
        service.close()


_GBIT, _GIB = 1e9 / 8, 2**30


@click.command()
@click.argument("model")
@click.option("--machines", default=2, show_default=True)
@click.option("--processes", default=1, show_default=True, help="Of each machine.")
@click.option(
    "--bandwidth", default=1.0, show_default=True, help="Between machines, Gbit/s."
)
@click.option(
    "--inside", default=100.0, show_default=True, help="Bandwidth inside one, Gbit/s."
)
@click.option("--memory", default=math.inf, help="Of a process, GiB.")
@click.option("--straight", is_flag=True, help="No stage has replicas.")
@click.option("--no-overlap", is_flag=True, help="Gradients are added up afterwards.")
@click.option("--threads", default=1, show_default=True, help="Of a process.")
@JSON
def plan(
    model: str,
    *,
    machines: int,
    processes: int,
    bandwidth: float,
    inside: float,
    memory: float,
    straight: bool,
    no_overlap: bool,
    threads: int,
    as_json: bool,
) -> None:
    """Measure MODEL's layers here and say how to cut it into stages of a pipeline.

    MODEL is FILE.py:NAME or MODULE:NAME of a pair, or of a function that returns one: a
    torch module and a batch for it. Your file is run here, as if you had imported it.

    Example: stoilo learn plan net.py:make --machines 8 --bandwidth 10
    """
    # Torch is loaded by who profiles, not by who serves a shard.
    import torch  # noqa: PLC0415

    from stoilo.learn.cells.profiling import list_layers, profile  # noqa: PLC0415

    torch.set_num_threads(threads)
    module, batch = _read_pair(model)
    layers = profile(list_layers(module, *batch), *batch)
    levels = Level(processes, inside * _GBIT), Level(machines, bandwidth * _GBIT)
    rules = Rules(memory * _GIB, overlap=not no_overlap, straight=straight)
    made = plan_stages(layers, levels, rules)
    copies = plan_copies(layers, levels, rules)
    record = {"plan": _list_figures(made), "copies": _list_figures(copies)}
    say({"layers": layers, **record}, _render_plans(made, copies), as_json=as_json)


def _read_pair(named: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return module and batch: runs the researcher's own file, on his own machine.

    Raises:
        UsageError: ``STO-U004``: it cannot be loaded; ``STO-T001``: it is no such pair.
    """
    place, _, name = named.rpartition(":")
    path = Path(place)
    is_file = path.suffix == ".py"
    # As Python does with a script: its neighbours can be imported.
    sys.path.insert(0, str(path.absolute().parent if is_file else Path.cwd()))
    try:
        found = getattr(importlib.import_module(path.stem if is_file else place), name)
        found = (
            found if hasattr(found, "parameters") or not callable(found) else found()
        )
    except Exception as error:  # whatever a file of the caller's raises
        why = f"{type(error).__name__}: {error}"
        raise UsageError("STO-U004", f"{named} cannot be loaded: {why}") from error
    match found:
        case (module, batch) if hasattr(module, "parameters"):
            return module, batch if isinstance(batch, tuple) else (batch,)
    raise UsageError("STO-T001", f"{named} is no pair of a torch module and a batch")


def _list_figures(plan: Plan) -> dict[str, object]:
    names = (
        "config stages batch_s speedup utilisation depths memory_bytes traffic_bytes"
    )
    return {name: getattr(plan, name) for name in names.split()}


def _render_plans(made: Plan, copies: Plan) -> str:
    """Return tables of layers, of stages, and of both ways to train."""
    layers, stages, both = (
        ["layer ms output_MB weights_MB kept_MB"],
        ["stage from to replicas versions MB_a_process"],
        ["- replicas ms_a_batch times_one utilisation MB_a_process MB_sent_a_batch"],
    )
    for layer in made.layers:
        sizes = layer.output_bytes, layer.weight_bytes, layer.kept_bytes
        columns = " ".join(f"{size / 1e6:.3f}" for size in sizes)
        layers.append(f"{layer.name} {layer.time_s * 1e3:.3f} {columns}")
    for number, stage in enumerate(made.stages):
        ends = f"{made.layers[stage.begin].name} {made.layers[stage.end - 1].name}"
        held = f"{made.depths[number]} {made.memory_bytes[number] / 1e6:.3f}"
        stages.append(f"{number} {ends} {stage.replicas} {held}")
    for name, one in (("plan", made), ("copies", copies)):
        pace = f"{one.batch_s * 1e3:.3f} {one.speedup:.2f} {one.utilisation:.3f}"
        held = f"{max(one.memory_bytes) / 1e6:.3f} {one.traffic_bytes / 1e6:.3f}"
        both.append(f"{name} {one.config} {pace} {held}")
    tables = ([line.split() for line in table] for table in (layers, stages, both))
    return "\n\n".join(map(render_table, tables))
