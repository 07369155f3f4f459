# expect: killed limits memory_bytes
held = []
for _ in range(300):
    held.append(bytearray(1 << 20))
print("REACHED")
