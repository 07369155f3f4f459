# expect: killed kernel socket
# preload: socket
import socket

socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
print("REACHED")
