# /// stoilo-case
# idea = "super objects"
# stopped_by = "language"
# code = "STO-G101"
# ///
class A:
    def read(self, path):
        kinds = [getattr(super(), "__this" + "class__").mro()[-1]]
        for name in ("_IOBase", "_RawIOBase", "FileIO"):
            below = getattr(kinds[0], "__sub" + "classes__")()
            kinds = [kind for kind in below if kind.__name__ == name]
        return kinds[0](path).read().decode()


def run(kwargs):
    return A().read(kwargs["canary"])
