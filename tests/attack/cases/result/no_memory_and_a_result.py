# /// stoilo-case
# idea = "an ending of its own choice"
# run = "probe"
# stopped_by = "limits"
# limit = "result_bytes"
# goal = "inside"
# control = "none"
# ///
# The word for "no memory was left for a result", and then a result.
import os

os.write(4, (1 << 62).to_bytes(8, "big"))
