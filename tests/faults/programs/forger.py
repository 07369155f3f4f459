"""A volunteer that forges its result files, as the first line of each task's source asks.

    python forger.py --project URL --key KEY --state DIR --root FILE

`# forge NAME` selects one forgery below; what it changes was true and honestly computed.
"""

import re
import sys

import msgspec

from stoilo.executor.slot.executor import Executor
from stoilo.core.codec import skeleton
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.verifier.workunit import parse_result, render_result
from stoilo.executor.volunteer.main import main

PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."


def change(**fields):
    def forge(file, data):
        header = msgspec.structs.replace(file.header, **fields)
        return render_result(header, file.frame, file.output)

    return forge


def frame(made):
    def forge(file, data):
        return render_result(file.header, made, file.output)

    return forge


def node(made):
    return frame(skeleton.encode(made))


def raw_header(edit):
    def forge(file, data):
        line, _, rest = data.partition(b"\n")
        return edit(line) + b"\n" + rest

    return forge


FORGERIES = {
    "admission": change(admission="0" * 64),
    "attempt": change(attempt=2),
    "result": change(result="0" * 32 + "_1_0"),
    "workunit": change(workunit="0" * 32 + "_1"),
    "flavor": change(flavor="../flavor"),
    "code": change(disposition="refused", status=None, code="<b>STO-R001</b>"),
    "no_header": lambda file, data: b"\xff" * 200,
    "empty": lambda file, data: b"",
    "long_header": raw_header(lambda line: line + b" " * 5000),
    "duplicate_keys": raw_header(lambda line: b'{"attempt":1,' + line[1:]),
    "deep_header": raw_header(lambda line: b"[" * 4000),
    "lengths": raw_header(
        lambda line: re.sub(rb'"frame_bytes":\d+', b'"frame_bytes":999999', line)
    ),
    "negative": raw_header(
        lambda line: re.sub(rb'"frame_bytes":\d+', b'"frame_bytes":-9', line)
    ),
    "pickle": frame(PICKLE),
    "cut_frame": lambda file, data: render_result(
        file.header, file.frame[:-3], file.output
    ),
    "list": node([1]),
    "status_list": node({"status": ["ok"], "value": skeleton.encode(1)}),
    "status_word": node({"status": "root", "value": skeleton.encode(1)}),
    "pickled_value": node({"status": "ok", "value": PICKLE}),
    "no_value": node({"status": "ok"}),
    "output": lambda file, data: render_result(
        file.header, file.frame, b"\x1b]0;\xff" * 10
    ),
}


ASKED = {}
store_honestly = Ledger.store_result


def store_forged(ledger, record, data):
    """Keep the forgery instead: the volunteer's own checks lie before this point."""
    name = ASKED.pop(record.result, None)
    if name is not None:
        data = FORGERIES[name](parse_result(data), data)
    store_honestly(ledger, record, data)


class Reader(Executor):
    """An executor that looks at the source for the word of the forgery."""

    def __init__(self, honest):
        self._honest = honest

    def execute(self, work):
        asked = re.match(rb"# forge (\w+)\n", work.read("task_module"))
        if asked is not None:
            ASKED[work.result] = asked[1].decode()
        return self._honest.execute(work)

    def cancel(self, result):
        self._honest.cancel(result)

    def close(self):
        self._honest.close()


if __name__ == "__main__":
    Ledger.store_result = store_forged
    sys.exit(main(wrap=Reader))
