# /// stoilo-case
# idea = "flood the result"
# stopped_by = "limits"
# limit = "result_bytes"
# goal = "inside"
# limits = { result_bytes = 65536 }
# ///
def run(kwargs):
    return [list(range(300)) for _ in range(300)] + ["REACHED"]
