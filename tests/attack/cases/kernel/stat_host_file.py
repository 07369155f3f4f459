# /// stoilo-case
# idea = "stat host file"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
import os

os.stat("/etc/passwd")
print("REACHED")
