"""`stoilo learn dispatcher`, `node` and `traffic`, as an operator starts them."""

import json
import sys
from urllib.request import urlopen

import pytest

from stoilo.cli.main import main
from stoilo.learn.store.place import read_place
from stoilo.learn.traffic.owner import give
from tests.support.networkshard import NetworkShard


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(command, name, *more):
        words = ("stoilo", "learn", command)
        one = NetworkShard(tmp_path / name, (sys.executable, "-m", *words), more)
        started.append(one)
        return one

    yield begin
    for one in started:
        one.kill()


def test_operator_sees_who_got_what_from_whom(start, wait_until, capsys):
    nodes = ("--node", "oslo", "--node", "turin")
    hub = start("dispatcher", "hub", *nodes, "--metrics", "127.0.0.1:0")
    for name in ("oslo", "turin"):
        file = hub.folder / "nodes" / f"{name}.json"
        start("node", name, "--dispatcher", str(file))
    give(read_place(hub.folder.parent / "oslo" / "connection.json"), 7, b"model" * 9)
    words = ["learn", "traffic", str(hub.folder / "connection.json")]

    def show():
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    wait_until(lambda: show()["versions"].get("7") == ["oslo", "turin"])
    sent = [e for e in show()["events"] if e["what"] == "sent"]
    assert [(e["node"], e["sender"], e["size"]) for e in sent] == [
        ("turin", "oslo", 45)
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert ["oslo", "7", "0.0", "0.0", "-"] in [
        row[:1] + row[2:] for row in rows if row
    ]
    assert [row[1:5] for row in rows if "sent" in row] == [
        ["sent", "7", "turin", "oslo"]
    ]
    tree = [line.split("  ")[:2] for line in said.splitlines()[-3:-1]]
    assert tree == [["oslo"], ["", "turin"]]
    (top, below) = show()["tree"]["steps"]
    assert (top["node"], below["node"], below["partner"]) == ("oslo", "turin", "oslo")
    assert main([*words, "--number", "8"]) == 2
    assert "STO-R090" in capsys.readouterr().err
    link = b'{receiver="turin",sender="oslo"}'
    with urlopen(f"http://{hub.line['metrics']}/metrics", timeout=60) as answer:
        assert b"stoilo_traffic_bytes_total%s 45.0\n" % link in answer.read()


def test_dispatcher_that_is_gone_is_said_to_be(start, capsys):
    hub = start("dispatcher", "hub", "--node", "oslo")
    hub.kill()
    assert main(["learn", "traffic", str(hub.folder / "connection.json")]) == 7
    assert "STO-C050" in capsys.readouterr().err
