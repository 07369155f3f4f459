# expect: user_error language *
# control: none
import os

os._exit(7)
