# /// stoilo-case
# idea = "forged frame"
# run = "probe"
# stopped_by = "result"
# goal = "inside"
# control = "none"
# ///
import os

os.write(4, (1).to_bytes(8, "big") + b"xx")
os._exit(0)
