# expect: refused STO-G019
# level: pure
from typing import get_type_hints


def run(kwargs):
    return "ESCAPED" if get_type_hints(run) == {} else ""
