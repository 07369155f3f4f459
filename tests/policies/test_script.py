import ast

import pytest

from stoilo.core.types import BOUNDS
from stoilo.policies.entry import read_script
from stoilo.policies.gate import GateRequest, judge

TASK = b"def task(kwargs):\n    return 1\n"
BLOCK = b'if __name__ == "__main__":\n    import argparse\n    task({})\n'


def test_script_block_becomes_empty_lines_and_a_note():
    text = read_script(TASK + BLOCK + b"x = os\n")
    assert text.source == TASK + b"\n\n\n" + b"x = os\n"
    assert text.notes == ('line 3: the block `if __name__ == "__main__":` is left out',)


def test_file_with_script_block_is_admitted_only_after_it_is_dropped():
    data = TASK + BLOCK
    assert judge(GateRequest(read_script(data).source)).admitted
    refused = {found.code for found in judge(GateRequest(data)).findings}
    assert {"STO-P033", "STO-P040"} <= refused  # what a server says of the bare file


def test_findings_keep_their_lines():
    (found,) = judge(
        GateRequest(read_script(BLOCK + TASK + b"import os\n").source)
    ).findings
    assert (found.code, found.line) == ("STO-P040", 6)


@pytest.mark.parametrize(
    "line", [b"'__main__' == __name__", b"(__name__) == '__main__'"]
)
def test_block_is_found_however_it_is_written(line):
    assert read_script(b"if " + line + b": task()\n" + TASK).source == b"\n" + TASK


@pytest.mark.parametrize(
    "data",
    [
        b"text = '''\nif __name__ == '__main__':\n    pass\n'''\n",
        b"def f(d):\n    if __name__ == '__main__': pass\n",
        b"if __name__ == '__main__':\n    x = 1\nelse:\n    x = 2\n",
        b"if __name__ != '__main__': pass\n",
        b"if __name__ == '__main__':\n  (",
        b"\xff\xfe",
        b"(" * 3000,
    ],
)
def test_anything_else_is_left_to_the_gate(data):
    assert read_script(data).source == data
    assert read_script(data).notes == ()


def test_line_ends_and_byte_order_mark_are_normalised():
    text = read_script(b"\xef\xbb\xbfx = 1\r\ny = 2\r")
    assert text.source == b"x = 1\ny = 2\n"
    assert len(text.notes) == 1


def test_source_beyond_the_bound_is_not_parsed():
    data = b"#" * BOUNDS.source_bytes + b"\r"
    assert read_script(data).source is data


def test_two_blocks_are_both_dropped():
    text = read_script(BLOCK + TASK + BLOCK)
    assert [type(node) for node in ast.parse(text.source).body] == [ast.FunctionDef]
    assert len(text.notes) == 2
