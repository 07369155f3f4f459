# /// stoilo-case
# idea = "unix sockets"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import socket

socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
print("REACHED")
