# /// stoilo-case
# idea = "module through an allowed module"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import json.tool


def run(kwargs):
    return json.tool.sys.modules["io"].open(kwargs["canary"]).read()
