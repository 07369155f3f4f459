# /// stoilo-case
# idea = "text that formats for a library"
# wider = true
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import io
import logging
from json import dumps


class Names:
    formatter = property(
        lambda self: "{0.msg.__globals__[__name__]}", lambda self, value: None
    )


class Handler(Names, logging.StreamHandler):
    pass


def run(kwargs):
    out = io.StringIO()
    logger = logging.getLogger("formatted")
    logger.addHandler(Handler(out))
    logger.error(dumps)
    return "REACHED" if "json" in out.getvalue() else ""
