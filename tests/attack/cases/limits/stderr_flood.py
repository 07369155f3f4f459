# /// stoilo-case
# idea = "flood the output"
# stopped_by = "limits"
# limit = "output_bytes"
# goal = "inside"
# limits = { output_bytes = 8192 }
# ///
import sys


def run(kwargs):
    for _ in range(100):
        sys.stderr.write("x" * 1000)
    return "REACHED"
