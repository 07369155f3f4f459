# /// stoilo-case
# idea = "allocate in a task"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
def run(kwargs):
    held = []
    for _ in range(300):
        held.append(bytearray(1 << 20))
    return "REACHED"
