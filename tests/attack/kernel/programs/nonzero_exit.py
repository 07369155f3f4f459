# expect: user_error language SystemExit
# control: none
import sys

sys.exit(3)
