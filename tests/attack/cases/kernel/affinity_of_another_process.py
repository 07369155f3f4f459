# /// stoilo-case
# idea = "other processes"
# run = "probe"
# stopped_by = "kernel"
# error = "ProcessLookupError"
# goal = "inside"
# ///
import os

os.sched_getaffinity(os.getppid() or 1)
print("REACHED")
