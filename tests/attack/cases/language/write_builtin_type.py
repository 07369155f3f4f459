# /// stoilo-case
# idea = "change an exception or instance of a library"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import re


class Loud(Exception):
    pass


def run(kwargs):
    kind = re.error
    kind.word = "REACHED"
    return re.error("x").word
