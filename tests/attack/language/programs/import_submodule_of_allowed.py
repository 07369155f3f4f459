# expect: refused STO-G018
# level: pure
import json.decoder


def run(kwargs):
    return "ESCAPED" if json.decoder.scanner else ""
