# /// stoilo-case
# idea = "uses up the server"
# run = "validator"
# stopped_by = "limits"
# goal = "inside"
# limit = "output_bytes"
# limits = { output_bytes = 8192 }
# ///
def init(value):
    for _ in range(100):
        print("x" * 1000)
    return True
