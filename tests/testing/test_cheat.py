from __future__ import annotations

import pytest
from hypothesis import given

from stoilo.core.codec import skeleton
from stoilo.executor.slot.executor import Executor
from stoilo.executor.verifier.workunit import (
    Disposition,
    ResultHeader,
    parse_result,
    render_result,
)
from stoilo.testing.cheat import Cheat, falsify
from tests.support.strategies import nodes


def frame(value):
    return skeleton.encode({"status": "ok", "value": skeleton.encode(value)})


@given(nodes)
def test_value_is_changed_and_stays_readable(value):
    false = skeleton.decode(falsify(frame(value)))
    assert false["status"] == "ok"
    skeleton.decode(false["value"])


@pytest.mark.parametrize("value", [1, 2.5, "a", [1, 2], {"x": 1}, None, True, b"x"])
def test_value_is_another_one(value):
    false = skeleton.decode(falsify(frame(value)))
    assert skeleton.decode(false["value"]) != value


def test_every_item_of_a_map_is_changed():
    items = [skeleton.decode(frame(number)) for number in range(3)]
    false = skeleton.decode(falsify(skeleton.encode({"items": items})))
    values = [skeleton.decode(item["value"]) for item in false["items"]]
    assert values == [1, 2, 3]


def test_header_stays_true():
    class Honest(Executor):
        def execute(self, work):
            header = ResultHeader(
                format="stoilo-result/1",
                result=work,
                workunit="w",
                disposition=Disposition.RAN,
            )
            return render_result(header, frame(1), b"out")

        def close(self):
            pass

    file = parse_result(Cheat(Honest()).execute("w_0"))
    assert (file.header.result, file.output) == ("w_0", b"out")
    assert file.frame != frame(1)
