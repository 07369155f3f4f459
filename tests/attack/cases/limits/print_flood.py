# /// stoilo-case
# idea = "flood the output"
# stopped_by = "limits"
# limit = "output_bytes"
# goal = "inside"
# limits = { output_bytes = 8192 }
# ///
def run(kwargs):
    for _ in range(100):
        print("x" * 1000)
    return "REACHED"
