"""`/metrics` of a dispatcher: what it ordered and how that went, for Prometheus.

Labels are the names of nodes that the operator gave, and lists of ours. Counters begin anew
with the process. Nodes serve none: all that they do is reported to the dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector as MetricCollector

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.listen import Address, parse_address
from stoilo.learn.traffic.coordinator import Coordinator
from stoilo.learn.traffic.record import Record
from stoilo.server.watching.metrics import Kind, Metric, fill_families

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

_C, _G, _LINK = Kind.COUNTER, Kind.GAUGE, ("sender", "receiver")
METRICS: Final = (
    Metric("stoilo_traffic_nodes", _G, "Nodes that are there."),
    Metric("stoilo_traffic_leases", _G, "Transfers under way."),
    Metric("stoilo_traffic_transfers_total", _C, "Transfers that ended well.", _LINK),
    Metric("stoilo_traffic_bytes_total", _C, "Bytes of such transfers.", _LINK),
    Metric("stoilo_traffic_seconds_total", _C, "Time that they took.", _LINK),
    Metric("stoilo_traffic_rate_bytes_per_second", _G, "As last measured.", _LINK),
    # stalled, bytes (wrong ones), refused, gone, late (a lease ran out), other
    Metric("stoilo_traffic_failures_total", _C, "Transfers that failed.", ("cause",)),
    Metric("stoilo_traffic_events_total", _C, "Lines of the record.", ("what",)),
    Metric("stoilo_traffic_held_versions", _G, "Versions at a node.", ("node",)),
    Metric("stoilo_traffic_newest_version", _G, "The newest at a node.", ("node",)),
    Metric(
        "stoilo_traffic_named", _G, "1: a node is held at fault.", ("node", "fault")
    ),
    Metric("stoilo_traffic_disputes", _G, "Pairs of nodes that contradict each other."),
)


class Collector(MetricCollector):
    """What a coordinator shows, read when it is asked for."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[Family]:
        """Yield the figures of this moment."""
        record, totals = self._coordinator.show(0), self._coordinator.log.totals.copy()
        yield from fill_families(METRICS, read_figures(record, totals))


def read_figures(
    record: Record, totals: Mapping[tuple[str, ...], float]
) -> Iterator[tuple[Any, ...]]:
    """Yield each figure: a metric's name, its value, its labels."""
    yield "stoilo_traffic_nodes", len(record.nodes)
    yield "stoilo_traffic_leases", record.leases
    yield "stoilo_traffic_disputes", len(record.disputes)
    yield from ((name, value, *labels) for (name, *labels), value in totals.items())
    for *link, rate in record.rates:
        yield "stoilo_traffic_rate_bytes_per_second", rate, *link
    for node in record.nodes:
        held = [number for number, who in record.versions.items() if node in who]
        yield "stoilo_traffic_held_versions", len(held), node
        if held:
            yield "stoilo_traffic_newest_version", max(held), node
    for node, faults in record.named.items():
        yield from (("stoilo_traffic_named", 1, node, fault) for fault in faults)


def serve_metrics(coordinator: Coordinator, address: str) -> str:
    """Answer at an address of this machine from now on; return it, with its port.

    Raises:
        UsageError: ``STO-R090``, others could reach it: it asks for no token.
        InternalError: ``STO-U006``, it is another program's.
    """
    where = parse_address(address)
    if not where.loopback:
        raise UsageError(
            "STO-R090",
            f"--metrics {address[:80]!r} is not a loopback address",
            hint="let a Prometheus agent on this machine send the figures on",
        )
    registry = CollectorRegistry()
    registry.register(Collector(coordinator))
    try:
        server, _ = start_http_server(where.port, where.host, registry)
    except OSError as error:
        raise InternalError("STO-U006", f"{address}: {error.strerror}") from error
    return str(Address(where.host, server.server_port))
