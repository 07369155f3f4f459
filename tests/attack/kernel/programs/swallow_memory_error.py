# expect: ok
held = []
try:
    while len(held) < 400:
        held.append(bytearray(1 << 20))
except MemoryError:
    print(len(held) < 256)
else:
    print("REACHED")
