# /// stoilo-case
# idea = "exec"
# run = "probe"
# stopped_by = "kernel"
# goal = "inside"
# ///
import os

if os.system("true") == 0:
    print("REACHED")
