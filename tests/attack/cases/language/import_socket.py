# /// stoilo-case
# idea = "import of a forbidden module"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import socket


def run(kwargs):
    server = socket.socket(socket.AF_UNIX)
    server.bind(kwargs["mark"])
    return "bound"
