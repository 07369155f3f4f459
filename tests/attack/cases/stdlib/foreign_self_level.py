# /// stoilo-case
# idea = "library members that write on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
import logging
from textwrap import dedent


def run(kwargs):
    logging.StreamHandler.setLevel(dedent, 10)
    return "REACHED" if dedent.level == 10 else ""
