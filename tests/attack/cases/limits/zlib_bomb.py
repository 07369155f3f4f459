# /// stoilo-case
# idea = "allocate in a task"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 67108864 }
# ///
import zlib


def run(kwargs):
    part = zlib.compress(bytes(1 << 20), 9)
    held = [zlib.decompress(part) for _ in range(120)]
    return "REACHED"
