import json
import re


def run(n):
    pattern = re.compile(r"(\w+)=(\d+)")
    counts = {}
    for number in range(n):
        line = f"alpha={number} beta={number * 3 % 11} gamma={number % 7};"
        for name, value in pattern.findall(line):
            record = counts.setdefault(name, {"n": 0, "sum": 0})
            record["n"] += 1
            record["sum"] += int(value)
    return json.loads(json.dumps(counts))["beta"]
