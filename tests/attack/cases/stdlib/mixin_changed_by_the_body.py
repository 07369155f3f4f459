# /// stoilo-case
# idea = "mixin changed while the class is built"
# wider = true
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from textwrap import TextWrapper


class Mixin:
    """Empty until the body below runs."""


class Own(Mixin, TextWrapper):
    Mixin._split = lambda self, text: ["REACHED"]


def run(kwargs):
    return Own().fill("text")
