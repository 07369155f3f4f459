# /// stoilo-case
# idea = "library functions that read files"
# stopped_by = "gate"
# ///
import io
from array import array


def run(kwargs):
    data = array("B")
    with io.open(kwargs["canary"], "rb") as file:
        data.fromfile(file, 8)
        return data.tobytes().decode() + file.read().decode()
