# expect: user_error result *
# control: none
# A frame of the program's own before the real one: neither is believed.
import os

os.write(4, (4).to_bytes(8, "big") + b"STO\x01")
