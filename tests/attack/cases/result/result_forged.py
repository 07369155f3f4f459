# /// stoilo-case
# idea = "forged frame"
# run = "probe"
# stopped_by = "result"
# goal = "inside"
# control = "none"
# ///
# A frame of the program's own before the real one: neither is believed.
import os

os.write(4, (4).to_bytes(8, "big") + b"STO\x01")
