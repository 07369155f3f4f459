# /// stoilo-case
# idea = "tensor contraction"
# level = "numeric"
# ///
"""Matrix product states: canonical form, expectation values and entanglement."""
import numpy as np


def random_mps(n, d, chi, rng):
    dims = [1] + [min(chi, d ** min(i, n - i)) for i in range(1, n)] + [1]
    return [rng.normal(size=(dims[i], d, dims[i + 1])) + 0j for i in range(n)]


def left_canonical(mps):
    out, carry = [], np.eye(1)
    for A in mps:
        A = np.tensordot(carry, A, axes=(1, 0))
        l, d, r = A.shape
        Q, carry = np.linalg.qr(A.reshape(l * d, r))
        out.append(Q.reshape(l, d, -1))
    out[-1] = out[-1] * (carry / np.abs(carry))
    return out


def expectation(mps, op, site):
    env = np.ones((1, 1))
    for i, A in enumerate(mps):
        B = np.einsum("st,ltr->lsr", op, A) if i == site else A
        env = np.einsum("ab,asc,bsd->cd", env, A.conj(), B, optimize=True)
    return env.item()


def run(kwargs):
    rng = np.random.default_rng(99)
    mps = left_canonical(random_mps(8, 2, 6, rng))
    sz = np.diag([1.0, -1.0])
    norm = expectation(mps, np.eye(2), 0)
    mags = np.array([expectation(mps, sz, i).real for i in range(8)])
    psi = mps[0]
    for A in mps[1:]:
        psi = np.einsum("...i,ijk->...jk", psi, A)
    psi = psi.reshape(16, 16)
    s = np.linalg.svd(psi, compute_uv=False)
    p = s[s > 1e-14] ** 2
    path, info = np.einsum_path("ij,jk,kl->il", np.ones((2, 9)), np.ones((9, 9)), np.ones((9, 2)), optimize="optimal")
    return {"norm": abs(norm), "mags": mags, "entropy": -(p * np.log(p)).sum(), "path": path, "said": "Complete contraction" in info}
