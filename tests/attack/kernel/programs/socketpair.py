# expect: killed kernel socketpair
# preload: socket
import socket

socket.socketpair()
print("REACHED")
