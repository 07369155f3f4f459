"""The dashboard names only metrics that the server has, and all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stoilo.server.watching.metrics import METRICS, Kind

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "stoilo.json").read_text())
NAME = re.compile(r"\bstoilo_[a-z0-9_]+")
SERIES = {
    name: metric
    for metric in METRICS
    for name in (
        [f"{metric.name}_{end}" for end in ("bucket", "sum", "count")]
        if metric.kind == Kind.HISTOGRAM
        else [metric.name]
    )
}


def panels() -> list[dict[str, Any]]:
    return [one for one in DASHBOARD["panels"] if one["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    names = NAME.findall(expression)
    assert names
    metrics = [SERIES[name] for name in names]
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        known = {label for metric in metrics for label in metric.labels} | {"le"}
        assert {one.strip() for one in labels.split(",")} <= known


def test_legends_name_labels_that_exist() -> None:
    for panel in panels():
        for target in panel["targets"]:
            known = {x for n in NAME.findall(target["expr"]) for x in SERIES[n].labels}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known


def test_every_metric_is_shown() -> None:
    shown = {SERIES[name].name for one in expressions() for name in NAME.findall(one)}
    assert shown == {metric.name for metric in METRICS}


def test_panels_have_own_numbers_and_lie_beside_each_other() -> None:
    places = [panel["gridPos"] for panel in panels()]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(
        DASHBOARD["panels"]
    )
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
