# /// stoilo-case
# idea = "change an exception or instance of a library"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
class A:
    pass


def run(kwargs):
    a = A()
    setattr(a, "__di" + "ct__", {"word": "REACHED"})
    return a.word
