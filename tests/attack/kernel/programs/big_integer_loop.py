# expect: killed limits *
# wall: 0.7
# One C call that no Python-level timeout can interrupt.
len(range(3**800000 % 7, 9)) and len(str(1)) and 3 ** (1 << 23) % 10
print("REACHED")
