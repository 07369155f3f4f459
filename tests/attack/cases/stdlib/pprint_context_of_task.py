# /// stoilo-case
# idea = "addresses shown by pprint"
# stopped_by = "language"
# goal = "inside"
# ///
import pprint

CONTEXT = {}
SEEN = []


class Spy:
    def __repr__(self):
        SEEN.extend(CONTEXT)
        return "spy"


def run(kwargs):
    printer = pprint.PrettyPrinter()
    pprint.PrettyPrinter.format(printer, [Spy()], CONTEXT, 0, 0)
    return "REACHED" if any(key > 99999 for key in SEEN) else ""
