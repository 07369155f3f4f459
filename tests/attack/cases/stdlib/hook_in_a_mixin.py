# /// stoilo-case
# idea = "hooks of classes that extend a library's"
# stopped_by = "language"
# goal = "inside"
# ///
from string import Template


class Mixin:
    def __getattr__(self, name):
        return "REACHED"


class Forged(Mixin, Template):
    def __init__(self):
        """Store nothing."""


def run(kwargs):
    return Forged().safe_substitute()
