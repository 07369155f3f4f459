# /// stoilo-case
# idea = "text that formats for a library"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import io
import logging
from collections import UserString
from json import dumps


class Text(UserString):
    pass


def run(kwargs):
    out = io.StringIO()
    logging.basicConfig(stream=out, force=True)
    [handler] = logging.getLogger().handlers
    handler.setFormatter(Text("{0.msg.__globals__[__name__]}"))
    logging.error(dumps)
    return "REACHED" if "json" in out.getvalue() else ""
