# /// stoilo-case
# idea = "allocate too much"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 268435456 }
# ///
held = []
for _ in range(300):
    held.append(bytearray(1 << 20))
print("REACHED")
