# /// stoilo-case
# idea = "socket af alg"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import errno
import socket

try:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
except OSError as error:  # the call was made, this kernel merely lacks the family
    assert error.errno == errno.EAFNOSUPPORT
print("REACHED")
