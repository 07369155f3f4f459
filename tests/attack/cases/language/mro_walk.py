# /// stoilo-case
# idea = "class hierarchy walk"
# stopped_by = "language"
# code = "STO-G101"
# ///
def run(kwargs):
    kinds = [int.mro()[-1]]
    for name in ("_IOBase", "_RawIOBase", "FileIO"):
        below = getattr(kinds[0], "__sub" + "classes__")()
        kinds = [kind for kind in below if kind.__name__ == name]
    return kinds[0](kwargs["canary"]).read().decode()
