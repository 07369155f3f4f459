# /// stoilo-case
# idea = "sockets of clusters"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import errno
import socket

try:
    socket.socket(30, socket.SOCK_RAW)
except OSError as error:  # the call was made, this kernel merely lacks the family
    assert error.errno in {errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT, errno.EPROTONOSUPPORT}
print("REACHED")
