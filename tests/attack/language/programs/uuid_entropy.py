# expect: refused STO-G018
# level: pure
import uuid


def run(kwargs):
    return "ESCAPED" if uuid.uuid4() else ""
