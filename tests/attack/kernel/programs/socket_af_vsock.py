# expect: killed kernel socket
# preload: socket
import socket

socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
print("REACHED")
