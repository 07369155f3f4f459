# expect: user_error language NotPreloadedError
import socket

print("REACHED")
