#!/bin/sh
# The sandbox's tests and the attack corpus under each python3.N of PYTHONS that is on the PATH,
# each with the locked packages in a .venv-3.N of its own. torch is left out, and what needs it.
set -eu
cd "$(dirname "$0")/.."

for name in ${PYTHONS:-python3.12 python3.13 python3.14}; do
    if ! "$name" -c '' 2>/dev/null; then
        echo "pythons: no $name here" >&2
        continue
    fi
    venv=".venv-${name#python}"
    "$name" -m venv --clear "$venv"
    pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
    $pip install --require-hashes --only-binary :all: -r requirements/dev.txt
    $pip install --no-deps --no-build-isolation --editable .
    # Controls are left out: many show what 3.11's own library does.
    "$venv/bin/stoilo" sandbox suite --level numeric tests/attack/cases
    "$venv/bin/python" -m pytest -p no:cacheprovider tests/policies tests/sandbox \
        -m "not slow" -k "not tensor and not training and not torch and not without_importing_them and not second_face" \
        --ignore tests/sandbox/process/test_model_forgeries.py --ignore tests/sandbox/facades/test_tensor_models.py
done
