# /// stoilo-case
# idea = "reading past every getter"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class A:
    def method(self):
        """Have globals."""

    def read(self, name):
        return super().__getattribute__(name)


def run(kwargs):
    method = A().read("__cla" + "ss__").method
    return "REACHED" if method else ""
