import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def run(n):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 10))
    y = (x @ rng.normal(size=10) > 0).astype(int)
    total = 0.0
    for k in range(n):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=1 + k))
        total += float(cross_val_score(model, x, y, cv=5).mean())
    return total
