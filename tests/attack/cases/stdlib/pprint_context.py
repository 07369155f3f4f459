# /// stoilo-case
# idea = "addresses shown by pprint"
# stopped_by = "language"
# goal = "inside"
# ///
import pprint

SEEN = []


class Printer(pprint.PrettyPrinter):
    def format(self, value, context, maxlevels, level):
        SEEN.extend(key for key in context if isinstance(key, int))
        return repr(value), True, False


def run(kwargs):
    Printer(width=10).pformat([[1, [2, 3]], [4, 5]])
    return "REACHED" if any(key > 99999 for key in SEEN) else ""
