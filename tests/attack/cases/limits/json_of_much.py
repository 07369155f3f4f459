# /// stoilo-case
# idea = "allocate by libraries"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 67108864 }
# ///
import json


def run(kwargs):
    part = ["x" * 1000] * 1000
    text = json.dumps([part] * 120)
    return "REACHED"
