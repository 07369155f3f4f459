# /// stoilo-case
# idea = "hooks of classes that extend a library's"
# stopped_by = "language"
# goal = "inside"
# ///
from string import Template


class Forged(Template):
    def __init__(self):
        """Store nothing."""

    def __getattr__(self, name):
        return "REACHED"


def run(kwargs):
    return Forged().substitute()
