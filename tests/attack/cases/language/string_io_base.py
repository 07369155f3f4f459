# /// stoilo-case
# idea = "class hierarchy walk"
# stopped_by = "gate"
# code = "STO-G101"
# ///
from io import StringIO


def run(kwargs):
    kinds = [StringIO.__base__.__base__]
    for name in ("_RawIOBase", "FileIO"):
        kinds = [kind for kind in kinds[0].__subclasses__() if kind.__name__ == name]
    return kinds[0](kwargs["canary"]).read().decode()
