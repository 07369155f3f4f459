# /// stoilo-case
# idea = "write elsewhere"
# run = "probe"
# stopped_by = "kernel"
# syscall = "write"
# goal = "inside"
# control = "none"
# ///
import os

os.write(0, b"x")
print("REACHED")
