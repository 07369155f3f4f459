"""Figures of a dispatcher, scraped over HTTP."""

from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.traffic.coordinator import Coordinator
from stoilo.learn.traffic.metrics import METRICS, read_figures, serve_metrics
from tests.support.traffic import make_record


@pytest.fixture
def coordinator(tmp_path):
    made = Coordinator(tmp_path, "127.0.0.1:0", ["oslo", "turin"])
    yield made
    made.close()


def scrape(address):
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = [*parse(answer.read().decode())]
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def test_what_happened_is_counted_by_link_and_by_cause(coordinator):
    address = serve_metrics(coordinator, "127.0.0.1:0")
    before = scrape(address)
    for _ in range(2):
        coordinator.log.note("sent", "turin", 1, sender="oslo", size=9, seconds=0.5)
    coordinator.log.note("failed", "turin", 1, sender="oslo", cause="stalled")
    after = scrape(address)
    link = ("turin", "oslo")  # the library sorts labels: receiver, sender
    assert ("stoilo_traffic_bytes_total", *link) not in before
    assert after["stoilo_traffic_transfers_total", *link] == 2
    assert after["stoilo_traffic_bytes_total", *link] == 18
    assert after["stoilo_traffic_seconds_total", *link] == 1.0
    assert after["stoilo_traffic_failures_total", "stalled"] == 1
    assert after["stoilo_traffic_nodes",] == 0


def test_what_is_now_is_read_from_the_record():
    figures = {
        (name, *labels): v for name, v, *labels in read_figures(make_record(), {})
    }
    assert figures["stoilo_traffic_nodes",] == 12
    assert figures["stoilo_traffic_held_versions", "root"] == 3
    assert figures["stoilo_traffic_newest_version", "n1"] == 3
    assert figures["stoilo_traffic_named", "n12", "bytes"] == 1
    assert figures["stoilo_traffic_disputes",] == 1
    assert {name for name, *_ in figures} <= {one.name for one in METRICS}


def test_figures_are_shown_to_this_machine_alone(coordinator):
    with pytest.raises(UsageError) as caught:
        serve_metrics(coordinator, "0.0.0.0:0")
    assert caught.value.code == "STO-R090"


def test_address_of_another_program_is_said_to_be_taken(coordinator):
    address = serve_metrics(coordinator, "127.0.0.1:0")
    with pytest.raises(InternalError) as caught:
        serve_metrics(coordinator, address)
    assert caught.value.code == "STO-U006"
