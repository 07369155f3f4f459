# /// stoilo-case
# idea = "methods made by dataclass on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import json
from dataclasses import dataclass


@dataclass
class Patch:
    dumps: object


def run(kwargs):
    Patch.__init__(json, lambda value: "REACHED")
    return json.dumps(1)
