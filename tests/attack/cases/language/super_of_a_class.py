# /// stoilo-case
# idea = "super objects that hold a class"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import string


class Other(string.Template):
    @classmethod
    def start(cls):
        return super().__init__


def run(kwargs):
    Other.start()(string, "x")
    return "REACHED" if getattr(string, "template", "") == "x" else ""
