# /// stoilo-case
# idea = "raw packets"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# control = "root"
# preload = ["socket"]
# ///
import socket

socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
print("REACHED")
