# expect: killed limits result_bytes
# control: none
import os

os.write(4, (1 << 40).to_bytes(8, "big"))
