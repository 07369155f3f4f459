# /// stoilo-case
# idea = "an ending of its own choice"
# run = "probe"
# stopped_by = "language"
# code = "STO-S021"
# goal = "inside"
# control = "none"
# ///
# The status of a jail that could not be closed.
import os

os._exit(72)
