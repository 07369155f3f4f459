# /// stoilo-case
# idea = "import of a forbidden module"
# stopped_by = "gate"
# code = "STO-P040"
# source = "smolagents issue 2094"
# ///
import ctypes


def run(kwargs):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mkdir(kwargs["mark"].encode(), 0o700):
        raise OSError(ctypes.get_errno(), "mkdir")
