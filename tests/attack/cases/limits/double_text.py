# /// stoilo-case
# idea = "allocate in a task"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
def run(kwargs):
    text = "x"
    for _ in range(28):
        text += text
    return "REACHED"
