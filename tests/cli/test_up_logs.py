"""Messages of `stoilo up` as JSON: one object a line, whatever stands in them."""

import json
import logging
import sys

from stoilo.cli.up import JsonLines
from stoilo.testing.served import run_stoilo


def line_of(message, *values, exc_info=None):
    record = logging.LogRecord(
        "stoilo.x", logging.WARNING, "f", 1, message, values, exc_info
    )
    return JsonLines().format(record)


def test_record_is_one_line_with_its_parts():
    text = line_of("two\nlines of %s", "somebody")
    said = json.loads(text)
    assert "\n" not in text
    assert (said["level"], said["logger"]) == ("warning", "stoilo.x")
    assert said["message"] == "two\nlines of somebody"
    assert said["time"].endswith("+00:00")


def test_what_was_raised_comes_along():
    try:
        int("deep")
    except ValueError:
        text = line_of("it failed", exc_info=sys.exc_info())
    assert "ValueError: invalid" in json.loads(text)["exception"]
    assert "exception" not in json.loads(line_of("it did not"))


def test_command_offers_both_forms():
    assert "[text|json]" in run_stoilo("up", "--help")
