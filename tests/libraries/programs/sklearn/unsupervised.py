"""Clusters, decompositions, manifolds, mixtures, densities."""

import numpy as np
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AgglomerativeClustering,
    Birch,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
    SpectralClustering,
)
from sklearn.covariance import EllipticEnvelope, GraphicalLasso, LedoitWolf
from sklearn.cross_decomposition import CCA, PLSRegression
from sklearn.datasets import load_digits, load_iris, make_blobs, make_swiss_roll
from sklearn.decomposition import (
    NMF,
    PCA,
    DictionaryLearning,
    FastICA,
    KernelPCA,
    LatentDirichletAllocation,
    TruncatedSVD,
)
from sklearn.manifold import MDS, TSNE, Isomap, LocallyLinearEmbedding
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection


def means_of_blobs(args):
    X, y = make_blobs(300, centers=4, random_state=0)
    model = KMeans(4, n_init=3, random_state=0).fit(X)
    small = MiniBatchKMeans(4, n_init=2, random_state=0, batch_size=64).fit(X)
    scores = adjusted_rand_score(y, model.labels_), silhouette_score(X, model.labels_)
    return model.cluster_centers_, model.inertia_, small.predict(X[:20]), scores


def clusters_of_other_kinds(args):
    X, _ = make_blobs(150, centers=3, cluster_std=0.6, random_state=1)
    models = [
        DBSCAN(eps=0.8),
        HDBSCAN(min_cluster_size=8, copy=True),
        OPTICS(min_samples=8),
        AgglomerativeClustering(3),
        Birch(n_clusters=3),
        MeanShift(bandwidth=2),
        SpectralClustering(3, random_state=0),
    ]
    return [model.fit_predict(X) for model in models]


def components_of_digits(args):
    X, _ = load_digits(n_class=4, return_X_y=True)
    pca = PCA(6, svd_solver="full").fit(X)
    shrunk = PCA(5, svd_solver="randomized", random_state=0).fit_transform(X)
    parts = NMF(4, init="nndsvda", max_iter=40, random_state=0).fit(X)
    return pca.explained_variance_ratio_, shrunk[:3], parts.components_[0], parts.n_iter_


def sources_and_topics(args):
    rng = np.random.default_rng(2)
    signals = np.stack([np.sin(np.arange(80) / 5), rng.laplace(size=80)], 1)
    mixed = signals @ np.array([[1, 0.5], [0.4, 1]])
    found = FastICA(2, random_state=0, whiten="unit-variance").fit_transform(mixed)
    counts = rng.poisson(1.0, (30, 12))
    topics = LatentDirichletAllocation(3, random_state=0, max_iter=4).fit(counts)
    return found[:5], topics.components_, topics.perplexity(counts)


def a_small_map(args):
    X, _ = load_iris(return_X_y=True)
    near = TSNE(2, perplexity=10, max_iter=260, init="pca", random_state=0)
    exact = TSNE(2, method="exact", perplexity=8, max_iter=250, init="random", random_state=0)
    return near.fit_transform(X[::3]), near.kl_divergence_, exact.fit_transform(X[::6])


def unrolled(args):
    X, _ = make_swiss_roll(120, random_state=0)
    flat = Isomap(n_neighbors=8, n_components=2).fit_transform(X)
    local = LocallyLinearEmbedding(n_neighbors=10, random_state=0).fit(X)
    scaled = MDS(2, n_init=1, max_iter=30, random_state=0, init="random").fit_transform(X[:30])
    return flat[:4], local.reconstruction_error_, scaled[:3]


def mixtures_of_normals(args):
    X, _ = make_blobs(200, centers=3, random_state=3)
    mixed = GaussianMixture(3, random_state=0).fit(X)
    guess = BayesianGaussianMixture(n_components=5, random_state=0, max_iter=50).fit(X)
    sampled, _ = mixed.sample(4)
    return mixed.means_, mixed.bic(X), guess.weights_, sampled.shape


def densities_and_outliers(args):
    X, _ = load_iris(return_X_y=True)
    density = KernelDensity(bandwidth=0.4).fit(X)
    odd = LocalOutlierFactor(15).fit_predict(X)
    envelope = EllipticEnvelope(random_state=0, contamination=0.1).fit_predict(X)
    return density.score_samples(X[:6]), density.sample(2, random_state=0), odd, envelope


def covariances(args):
    X, _ = load_iris(return_X_y=True)
    return LedoitWolf().fit(X).covariance_, GraphicalLasso(0.05).fit(X).precision_


def projections(args):
    X, y = load_iris(return_X_y=True)
    kernel = KernelPCA(2, kernel="rbf", gamma=0.2, eigen_solver="dense").fit_transform(X)
    thin = GaussianRandomProjection(2, random_state=0).fit_transform(X)
    few = SparseRandomProjection(3, random_state=0).fit_transform(X)
    cut = TruncatedSVD(2, random_state=0).fit(X)
    pls = PLSRegression(2).fit(X, y)
    cca = CCA(1).fit(X[:, :2], X[:, 2:])
    atoms = DictionaryLearning(3, max_iter=5, random_state=0).fit(X)
    return (
        *(kernel[:3], thin[:3], few[:3], cut.singular_values_, pls.coef_),
        *(cca.x_weights_, atoms.components_),
    )
