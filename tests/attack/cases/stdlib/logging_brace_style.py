# /// stoilo-case
# idea = "format strings by library helpers"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
import io
import logging

SECRET = "REACHED"


class Text:
    def __str__(self):
        return "text"

    def method(self):
        return ""


def run(kwargs):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("{msg.method.__globals__[SECRET]}", style="{"))
    logger = logging.getLogger("forged")
    logger.addHandler(handler)
    logger.warning(Text())
    return out.getvalue()
