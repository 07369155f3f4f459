# /// stoilo-case
# idea = "allocate in a task"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
def run(kwargs):
    size = 300 << 23
    return "REACHED" if 1 << size else ""
