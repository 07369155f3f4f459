# /// stoilo-case
# idea = "names of files"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from pathlib import PurePosixPath


class Lying(PurePosixPath):
    name = "REACHED"


def run(kwargs):
    return Lying("a").name
