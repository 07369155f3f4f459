# /// stoilo-case
# idea = "an ending of its own choice"
# run = "probe"
# stopped_by = "language"
# code = "STO-S021"
# goal = "inside"
# control = "none"
# ///
# A status that once meant "out of memory".
import os

os._exit(71)
