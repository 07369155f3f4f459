# /// stoilo-case
# idea = "modules inside library modules"
# stopped_by = "gate"
# code = "STO-P041"
# ///
import json


def run(kwargs):
    return json.codecs.open(kwargs["canary"]).read()
