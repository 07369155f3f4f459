# /// stoilo-case
# idea = "library functions that run text"
# stopped_by = "gate"
# ///
import difflib


def run(kwargs):
    doctest = difflib._test.__globals__["__builtins__"]
    opened = doctest["open"] if isinstance(doctest, dict) else doctest.open
    return opened(kwargs["canary"]).read()
