# /// stoilo-case
# idea = "exception gives the object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from io import BytesIO


def run(kwargs):
    view = BytesIO(b"REACHED").getbuffer()
    return view.obj and bytes(view).decode()
