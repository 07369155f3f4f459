def run(n):
    words = ["alpha", "beta", "gamma", "delta", "epsilon"] * 40
    total = 0
    for turn in range(n):
        counts = {}
        for word in words:
            key = word.upper()[:3] + str(turn % 7)
            counts[key] = counts.get(key, 0) + 1
        joined = ",".join([k + "=" + str(v) for k, v in sorted(counts.items())])
        for part in joined.split(","):
            name, value = part.split("=")
            total = total + len(name.strip()) * int(value)
    return total
