# expect: killed limits output_bytes
for _ in range(100):
    print("x" * 1000)
print("REACHED")
