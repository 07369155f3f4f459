# /// stoilo-case
# idea = "library functions that read files"
# stopped_by = "gate"
# ///
import base64
import io
import sys


def run(kwargs):
    out = io.BytesIO()
    with io.open(kwargs["canary"], "rb") as file:
        base64.encode(file, out)
    return base64.b64decode(out.getvalue()).decode()
