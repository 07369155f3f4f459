# /// stoilo-case
# idea = "signals to others"
# run = "probe"
# stopped_by = "kernel"
# syscall = "kill"
# goal = "inside"
# ///
import os

os.kill(os.getppid(), 0)
print("REACHED")
