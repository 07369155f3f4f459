import numpy as np
from sklearn.ensemble import RandomForestClassifier


def run(n):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 8))
    y = (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int)
    forest = RandomForestClassifier(n_estimators=n, random_state=0).fit(x, y)
    return float(forest.score(x, y)) + float(forest.feature_importances_[0])
