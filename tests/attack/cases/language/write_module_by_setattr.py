# /// stoilo-case
# idea = "change a module"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# source = "CVE-2026-55830"
# ///
import json


def run(kwargs):
    setattr(json, "dumps", lambda value: "REACHED")
    return json.dumps(1)
