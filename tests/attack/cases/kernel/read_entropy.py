# /// stoilo-case
# idea = "read entropy"
# run = "probe"
# stopped_by = "kernel"
# goal = "inside"
# ///
import os

os.urandom(8)
print("REACHED")
