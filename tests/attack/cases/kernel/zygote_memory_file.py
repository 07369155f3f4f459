# /// stoilo-case
# idea = "reach of the zygote"
# run = "probe"
# stopped_by = "kernel"
# goal = "inside"
# ///
# The parent's memory as a file, which nobody but a tracer may write.
import os

with open(f"/proc/{os.getppid()}/mem", "rb+"):
    print("REACHED")
