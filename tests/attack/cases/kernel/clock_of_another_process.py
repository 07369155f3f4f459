# /// stoilo-case
# idea = "the machine's clock"
# run = "probe"
# stopped_by = "kernel"
# error = "OSError: [Errno 22]"
# goal = "inside"
# control = "host"
# ///
# A clock id that encodes the parent's pid: its processor time.
import os
import time

parent = os.getppid() or 1
print("REACHED", time.clock_gettime((~parent << 3) | 2))
