# expect: user_error result *
# control: none
import os

os.write(4, (1).to_bytes(8, "big") + b"xx")
os._exit(0)
