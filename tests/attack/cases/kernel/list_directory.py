# /// stoilo-case
# idea = "list a directory"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
import os

os.listdir("/")
print("REACHED")
