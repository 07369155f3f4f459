# /// stoilo-case
# idea = "text that formats for a library"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import io
import logging
from json import dumps


class Handler(logging.StreamHandler):
    pass


def run(kwargs):
    out = io.StringIO()
    handler = Handler(out)
    handler.formatter = "{0.msg.__globals__[__name__]}"
    logger = logging.getLogger("formatted")
    logger.addHandler(handler)
    logger.error(dumps)
    return "REACHED" if "json" in out.getvalue() else ""
