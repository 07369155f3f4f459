# /// stoilo-case
# idea = "socket af vsock"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import socket

socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
print("REACHED")
