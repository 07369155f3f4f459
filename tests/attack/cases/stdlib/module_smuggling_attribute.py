# /// stoilo-case
# idea = "module behind a library module"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2025-5120"
# ///
import json


def run(kwargs):
    return json.codecs.open(kwargs["canary"]).read()
