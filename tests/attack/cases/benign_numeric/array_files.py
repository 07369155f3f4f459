# /// stoilo-case
# idea = "arrays in files in memory"
# level = "numeric"
# ///
import io
import numpy as np
class Arr:
    def __init__(self, v): self.v = v
    def __array__(self, dtype=None, copy=None):
        return np.array(self.v, dtype=dtype)
def run(kw):
    b = io.BytesIO()
    a = np.arange(12.).reshape(3,4)
    np.save(b, a); np.save(b, np.asfortranarray(a)); np.save(b, np.array(5)); np.save(b, np.zeros((0,3),"i2")); np.save(b, np.array(["ab","c"])); np.save(b, np.array([(1,2.5)], dtype=[("x","<i4"),("y","<f8")]))
    b.seek(0)
    out = [np.load(b) for _ in range(6)]
    z = io.BytesIO(); np.savez(z, a, x=a*2, y=[1,2]); z.seek(0)
    c = io.BytesIO(); np.savez_compressed(c, q=np.ones(1000)); c.seek(0)
    with np.load(z) as f:
        out2 = [sorted(f.files), f["x"].sum(), f["arr_0"].shape, sorted(k for k in f), len(f), "x" in f, f["y"].tolist()]
    out3 = [len(c.getvalue()) < 1000, np.load(c)["q"].sum()]
    dt = np.dtype([("x","<i4"),("y","<f8")])
    out4 = [list(dt.fields), dt.fields["y"][1], np.dtype("f8").fields]
    a.setflags(write=False)
    try: a[0] = 1
    except ValueError as e: out4.append(str(e))
    out4 += [np.asarray(Arr([1,2])).sum(), (np.ones(2) + Arr([1,2])).tolist() if False else 0, np.add(Arr([1,2]), 1).tolist()]
    return [[o.tolist() for o in out], [o.flags.f_contiguous for o in out], out2, out3, out4]
