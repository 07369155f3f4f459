# /// stoilo-case
# idea = "burn time against the reporter"
# stopped_by = "limits"
# limit = "cpu_s"
# goal = "inside"
# limits = { cpu_s = 1 }
# ///
import time


def run(kwargs):
    end = time.process_time() + 0.3
    while __name__ != "attack" or time.process_time() < end:
        try:
            raise KeyboardInterrupt
        except BaseException:
            pass
    return "REACHED"
