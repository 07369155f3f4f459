# expect: user_error STO-G200
# level: pure
import json


def run(kwargs):
    return "ESCAPED" if json.codecs else ""
