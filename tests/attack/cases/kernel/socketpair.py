# /// stoilo-case
# idea = "unix sockets"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socketpair"
# goal = "inside"
# preload = ["socket"]
# ///
import socket

socket.socketpair()
print("REACHED")
