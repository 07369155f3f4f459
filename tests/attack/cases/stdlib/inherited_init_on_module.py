# /// stoilo-case
# idea = "inherited library methods on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import json
from string import Template


class T(Template):
    pass


def run(kwargs):
    target = [json][0]
    T.__init__(target, "REACHED")
    return target.template
