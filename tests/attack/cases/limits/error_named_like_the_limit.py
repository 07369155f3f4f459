# /// stoilo-case
# idea = "an ending by name"
# level = "pure"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# control = "none"
# ///
class MemoryError(Exception):  # noqa: A001
    pass


def run(kwargs):
    raise MemoryError("the memory limit, it seems")
