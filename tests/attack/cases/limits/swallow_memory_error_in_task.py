# /// stoilo-case
# idea = "allocate by libraries"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1, memory_bytes = 134217728 }
# ///
import time


def run(kwargs):
    held, end = [], time.process_time() + 0.3
    for _ in range(10**9):
        try:
            if len(held) < 200:
                held.append(bytearray(1 << 20))
        except MemoryError:
            pass
        if __name__ == "attack" and time.process_time() > end:
            return "REACHED"
