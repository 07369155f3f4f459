# /// stoilo-case
# idea = "tables of text"
# level = "numeric"
# ///
"""Spectrum and catalogue tables: loadtxt, genfromtxt, savetxt, fromregex from StringIO."""
import io

import numpy as np

SPECTRUM = """# wavelength flux error
4000.0  1.25  0.05
4001.5  1.31  0.05
4003.0  0.98  0.06
4004.5  nan   0.06
4006.0  1.22  0.04
"""
CATALOG = """id,name,ra,dec,mag
1,Vega,279.23,38.78,0.03
2,Altair,297.70,8.87,
3,Deneb,310.36,45.28,1.25
"""
LOG = "t=0.5s T=300K; t=1.0s T=310K; t=1.5s T=318K"


def equivalent_width(w, f):
    good = np.isfinite(f)
    return np.trapezoid(1 - f[good] / f[good].max(), w[good])


def run(kwargs):
    w, f, e = np.loadtxt(io.StringIO(SPECTRUM), unpack=True)
    subset = np.loadtxt(SPECTRUM.splitlines()[1:], usecols=(0, 2), max_rows=2, dtype=np.float32)
    cat = np.genfromtxt(io.StringIO(CATALOG), delimiter=",", names=True, dtype=None, encoding="utf-8")
    masked = np.genfromtxt(io.StringIO(CATALOG), delimiter=",", skip_header=1, usecols=4, usemask=True)
    times = np.fromregex(io.StringIO(LOG), r"t=([\d.]+)s T=(\d+)K", [("t", float), ("T", int)])
    out = io.StringIO()
    np.savetxt(out, np.c_[w, f, e], fmt=["%8.2f", "%6.3f", "%5.2f"], header="w f e", comments="# ")
    print(out.getvalue(), end="")
    back = np.loadtxt(io.StringIO(out.getvalue()))
    numbers = np.fromstring("1 2 3.5", sep=" ")
    conv = np.loadtxt(["1;a", "2;b"], delimiter=";", converters={1: lambda s: ord(s) - 96})
    return {
        "ew": equivalent_width(w, f),
        "subset": subset,
        "names": cat.dtype.names,
        "bright": [str(n) for n in cat["name"][cat["mag"] < 1]],
        "mask": np.ma.getmaskarray(masked),
        "heating": np.polyfit(times["t"], times["T"], 1)[0],
        "same": bool(np.allclose(back[:, 0], w)),
        "numbers": numbers,
        "conv": conv,
    }
