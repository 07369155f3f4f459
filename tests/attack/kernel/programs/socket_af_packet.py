# expect: killed kernel socket
# preload: socket
# control: root
import socket

socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
print("REACHED")
