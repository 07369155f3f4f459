# /// stoilo-case
# idea = "allocate too much"
# run = "probe"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 268435456 }
# ///
held = bytearray(600 << 20)
print("REACHED")
