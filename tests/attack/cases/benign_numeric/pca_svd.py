# /// stoilo-case
# idea = "dimension reduction"
# level = "numeric"
# ///
import numpy as np
from numpy.linalg import eigh, svd


class PCA:
    """A tiny scikit-learn look-alike."""

    def __init__(self, n_components=2, *, whiten=False):
        self.n_components = n_components
        self.whiten = whiten

    def fit(self, X, y=None):
        X = np.asarray(X, dtype=float)
        self.mean_ = X.mean(axis=0)
        U, s, Vt = svd(X - self.mean_, full_matrices=False)
        signs = np.sign(Vt[range(len(Vt)), np.abs(Vt).argmax(axis=1)])
        Vt *= signs[:, None]
        self.components_ = Vt[: self.n_components]
        self.explained_variance_ = s**2 / (len(X) - 1)
        self.explained_variance_ratio_ = self.explained_variance_ / self.explained_variance_.sum()
        return self

    def transform(self, X):
        Z = (X - self.mean_) @ self.components_.T
        if self.whiten:
            Z /= np.sqrt(self.explained_variance_[: self.n_components])
        return Z

    def inverse_transform(self, Z):
        return Z @ self.components_ + self.mean_

    def __repr__(self):
        return f"{type(self).__name__}(n_components={self.n_components})"


def run(kwargs):
    rng = np.random.default_rng(5)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    X = rng.normal(size=(300, 6)) * [5, 3, 1, 0.1, 0.1, 0.1] @ basis.T
    model = PCA(3).fit(X)
    print(model)
    Z = model.transform(X)
    back = model.inverse_transform(Z)
    w = eigh(np.cov(X, rowvar=False))[0][::-1]
    assert np.allclose(w, model.explained_variance_)
    return {"ratio": model.explained_variance_ratio_, "error": np.linalg.norm(X - back) / np.linalg.norm(X), "white": np.cov(PCA(2, whiten=True).fit(X).transform(X).T)}
