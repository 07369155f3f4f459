# /// stoilo-case
# idea = "flood the output"
# stopped_by = "limits"
# limit = "output_bytes"
# goal = "inside"
# limits = { output_bytes = 8192 }
# ///
import warnings


def run(kwargs):
    for number in range(100):
        warnings.warn("x" * 1000 + str(number))
    return "REACHED"
