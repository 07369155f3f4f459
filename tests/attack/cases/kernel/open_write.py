# /// stoilo-case
# idea = "open a file"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# ///
import os

open("stoilo-attack.txt", "w").close()
os.unlink("stoilo-attack.txt")
print("REACHED")
