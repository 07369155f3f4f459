# /// stoilo-case
# idea = "allocate by libraries"
# stopped_by = "limits"
# limit = "memory_bytes"
# goal = "inside"
# limits = { memory_bytes = 134217728 }
# ///
import copy


def run(kwargs):
    part = [bytearray(1 << 20) for _ in range(60)]
    held = [copy.deepcopy(part) for _ in range(4)]
    return "REACHED"
