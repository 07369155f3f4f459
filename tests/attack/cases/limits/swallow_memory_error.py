# /// stoilo-case
# idea = "allocate too much"
# run = "probe"
# level = "pure"
# stopped_by = "limits"
# goal = "inside"
# limits = { memory_bytes = 268435456 }
# ///
held = []
try:
    while len(held) < 400:
        held.append(bytearray(1 << 20))
except MemoryError:
    print(len(held) < 256)
else:
    print("REACHED")
