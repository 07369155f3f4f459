# /// stoilo-case
# idea = "uses up the server"
# run = "validator"
# stopped_by = "validation"
# verdict = "raised"
# goal = "inside"
# limits = { memory_bytes = 67108864 }
# ///
def compare(one, other):
    held = [bytearray(1 << 20) for _ in range(200)]
    return bool(held)
