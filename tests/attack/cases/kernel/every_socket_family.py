# /// stoilo-case
# idea = "every socket family"
# run = "probe"
# stopped_by = "kernel"
# syscall = "socket"
# goal = "inside"
# preload = ["socket"]
# ///
# In errno mode each family is tried; anything but EPERM was the kernel's own answer.
import errno
import socket

for family in range(1, 46):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, 5):
        try:
            socket.socket(family, kind).close()
        except PermissionError:
            continue
        except OSError:
            pass
        print("REACHED", family, kind)
