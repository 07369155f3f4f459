# expect: killed limits memory_bytes
held = bytearray(600 << 20)
print("REACHED")
