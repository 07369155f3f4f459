# /// stoilo-case
# idea = "names of files"
# stopped_by = "gate"
# code = "STO-G101"
# ///
from pathlib import PurePath


def run(kwargs):
    path = PurePath(kwargs["canary"])
    return path.__fspath__() and open(path).read()
