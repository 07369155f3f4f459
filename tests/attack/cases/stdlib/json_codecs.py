# /// stoilo-case
# idea = "modules inside library modules"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import json


def run(kwargs):
    return json.codecs.open(kwargs["canary"]).read()
