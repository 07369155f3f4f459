# expect: killed kernel socket
# preload: socket
import socket

socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM)
print("REACHED")
