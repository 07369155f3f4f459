# /// stoilo-case
# idea = "allocate by libraries"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
def run(kwargs):
    return "REACHED" if "".join(["x" * (1 << 20)] * 300) else ""
