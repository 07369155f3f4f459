# /// stoilo-case
# idea = "socket af netlink"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
import socket

socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM)
print("REACHED")
