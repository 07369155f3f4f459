# /// stoilo-case
# idea = "structured arrays"
# level = "numeric"
# ///
"""Record arrays and recfunctions: joins, appended fields, unstructured views."""
import numpy as np
import numpy.lib.recfunctions as rfn


def run(kwargs):
    people = np.rec.fromrecords([(1, "Ada", 36), (2, "Max", 41), (4, "Eva", 29)], names="id,name,age")
    visits = np.array([(1, 7.5), (2, 1.5), (4, 3.0)], dtype=[("id", int), ("cost", float)])
    table = rfn.append_fields(people, "cost", visits["cost"], usemask=False)
    joined = rfn.join_by("id", np.asarray(people), visits, usemask=False)
    flat = rfn.structured_to_unstructured(visits)
    pts = rfn.unstructured_to_structured(np.arange(6.0).reshape(3, 2), dtype=np.dtype([("x", "f8"), ("y", "f8")]))
    renamed = rfn.rename_fields(pts, {"x": "lon"})
    packed = rfn.repack_fields(table[["id", "cost"]])
    older = people[people.age > 30]
    cols = np.rec.fromarrays([np.arange(3), np.linspace(0, 1, 3)], names=["n", "v"])
    cols.v = cols.v * 2
    for row in older:
        print(row.id, row.name, row["age"])
    return {
        "mean": people.age.mean(),
        "names": table.dtype.names,
        "cost": float(table["cost"].sum()),
        "joined": [tuple(map(str, r)) for r in joined.tolist()],
        "flat": flat,
        "renamed": renamed.dtype.names,
        "x": pts["x"],
        "size": packed.dtype.itemsize,
        "v": cols.v,
        "dropped": rfn.drop_fields(visits, "cost").dtype.names,
        "kind": isinstance(cols, np.recarray),
        "merged": rfn.merge_arrays([np.arange(2), np.ones(2)], flatten=True).tolist(),
        "sorted": np.sort(people, order="age").name.tolist(),
    }
