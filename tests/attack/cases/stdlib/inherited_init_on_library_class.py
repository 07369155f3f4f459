# /// stoilo-case
# idea = "inherited library methods on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import json


class E(json.JSONEncoder):
    pass


def run(kwargs):
    E.__init__(json.JSONEncoder, default=lambda *values: "REACHED")
    return json.dumps(object())
