# /// stoilo-case
# idea = "structured arrays"
# level = "numeric"
# ///
"""A star catalogue as a structured array: sort, mask, group, join."""
import numpy as np

STAR = np.dtype([("name", "U10"), ("ra", "f8"), ("dec", "f8"), ("mag", "f4"), ("spec", "S2"), ("flags", "u1", (2,))])


def run(kwargs):
    cat = np.array(
        [
            ("Sirius", 101.287, -16.716, -1.46, b"A1", (1, 0)),
            ("Vega", 279.235, 38.784, 0.03, b"A0", (0, 1)),
            ("Betelgeuse", 88.793, 7.407, 0.5, b"M1", (1, 1)),
            ("Rigel", 78.634, -8.202, 0.13, b"B8", (0, 0)),
            ("Procyon", 114.825, 5.225, 0.34, b"F5", (1, 0)),
        ],
        dtype=STAR,
    )
    print(cat.dtype.names, cat.dtype.itemsize)
    bright = cat[cat["mag"] < 0.4]
    by_mag = np.sort(cat, order=["mag", "name"])
    cat["mag"] += np.float32(0.1)
    cat[2]["flags"] = (9, 9)
    rows = [(str(r["name"]), round(float(r["ra"]), 2)) for r in by_mag]
    letters = np.array([s[:1] for s in cat["spec"].tolist()])
    groups = {k.decode(): cat["name"][letters == k].tolist() for k in np.unique(letters)}
    pos = np.zeros(len(cat), dtype=[("xyz", float, 3), ("id", np.int32)])
    r, d = np.radians(cat["ra"]), np.radians(cat["dec"])
    pos["xyz"] = np.column_stack([np.cos(d) * np.cos(r), np.cos(d) * np.sin(r), np.sin(d)])
    pos["id"] = np.arange(len(cat))
    sep = np.degrees(np.arccos(np.clip(pos["xyz"] @ pos["xyz"].T, -1, 1)))
    for name, mag in cat[["name", "mag"]]:
        print(f"{name:<12}{mag:5.2f}")
    first = cat[0].item()
    return {"bright": bright["name"], "rows": rows, "groups": groups, "sep": sep.round(3), "first": first[:2], "flags": cat["flags"], "fields": [f for f in STAR.names]}
