# /// stoilo-case
# idea = "annotations evaluated"
# stopped_by = "gate"
# code = "STO-P040"
# ///
from typing import get_type_hints


class Noted:
    pass


def run(kwargs):
    def noted(x: f"open({kwargs['canary']!r}).read()"):
        pass

    try:
        get_type_hints(noted)
    except (TypeError, SyntaxError) as error:
        return str(error)
