# /// stoilo-case
# idea = "result flood"
# run = "probe"
# stopped_by = "limits"
# limit = "result_bytes"
# goal = "inside"
# control = "none"
# limits = { result_bytes = 4096 }
# ///
import os

os.write(4, (1 << 40).to_bytes(8, "big"))
