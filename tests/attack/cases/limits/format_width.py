# /// stoilo-case
# idea = "allocate in a task"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
def run(kwargs):
    width = 300 << 20
    return "REACHED" if f"{1:{width}}" else ""
