# /// stoilo-case
# idea = "internet sockets"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import socket

socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
print("REACHED")
