"""One fit of a cross-validation, for scikit-learn's own searches on volunteers.

What the library's private ``_fit_and_score`` computes, said by its public functions.
"""

from __future__ import annotations

from sklearn.metrics import make_scorer
from sklearn.model_selection import cross_validate

__all__ = ["fit_and_score"]

FAILED = "fits failed"


def fit_and_score(call):
    """Return ``cross_validate``'s one row, or ``{"fit_error": text}``.

    ``call``: ``estimator``, ``parameters`` (name → value, or None), ``X``, ``y``, ``train``
    and ``test`` (indices), ``scoring`` (see `read_scoring`), ``options`` of
    ``cross_validate``.
    """
    estimator = call["estimator"]
    if call["parameters"] is not None:
        estimator.set_params(**call["parameters"])
    scoring = call["scoring"]
    if isinstance(scoring, dict):
        scoring = {name: read_scoring(one) for name, one in scoring.items()}
    else:
        scoring = read_scoring(scoring)
    split = [(call["train"], call["test"])]
    try:
        found = cross_validate(
            estimator,
            call["X"],
            call["y"],
            scoring=scoring,
            cv=split,
            **call["options"],
        )
    except ValueError as error:
        if call["options"]["error_score"] == "raise" or FAILED not in str(error):
            raise
        return {"fit_error": without_places(str(error))}
    rows = {name: values[0] for name, values in found.items()}
    models = {"estimator": rows.pop("estimator")} if "estimator" in rows else {}
    return models | {name: value.item() for name, value in rows.items()}


def without_places(text):
    """Return an error's text without the lines that name files: hosts have others."""
    lines = text.partition("following error:\nTraceback")[2].splitlines()[1:]
    return "\n".join(line for line in lines if line.strip() and line[0] != " ")


def read_scoring(told):
    """Return a scorer: None, a name and a function are their own, a tuple is made into one."""
    if not isinstance(told, tuple):
        return told
    function, is_greater_better, response, options = told
    return make_scorer(
        function,
        response_method=response,
        greater_is_better=is_greater_better,
        **options,
    )
