"""`stoilo sandbox selftest`: the table, the object and the exit code."""

import json

from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.sandbox.suite.attempts import Attempted
from stoilo.sandbox.suite.selftest import Row, State, render_table


def test_command_says_that_the_jail_holds_here():
    words = ["sandbox", "selftest", "--json"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.return_value == 0
    said = json.loads(result.stdout.splitlines()[-1])
    assert (said["holds"], said["level"]) == (True, "pure")
    rows = {row["mechanism"]: row for row in said["mechanisms"]}
    assert rows["landlock"]["result"] == "held"
    assert rows["landlock"]["attempts"][0] == {
        "place": "alone",
        "attempt": "read a file of the host",
        "through_without": True,
        "through": False,
    }


def test_table_shouts_what_got_through():
    through = Attempted("landlock", "read a file", "alone", control=True, reached=True)
    row = Row("landlock", mandatory=True, state=State.ACTIVE, attempts=(through,))
    text = "\n".join(render_table((row,)))
    assert "GOT THROUGH" in text
    assert "did not hold" in text


def test_table_tells_an_attempt_that_fails_anyway():
    vain = Attempted("landlock", "read a file", "alone", control=False, reached=False)
    row = Row("landlock", mandatory=True, state=State.ACTIVE, attempts=(vain,))
    text = "\n".join(render_table((row,)))
    assert "fails anyway" in text
    assert "not tried" in text
