#!/bin/sh
# Resolve requirements/*.in to hash-pinned .txt files, without index lines.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet pip-tools
# `run` is part of `dev`: the same versions.
for set in dev run bench site; do
    part=""
    [ "$set" = run ] && part="--constraint requirements/dev.txt"
    # shellcheck disable=SC2086
    "$tools/bin/pip-compile" --quiet --generate-hashes --allow-unsafe --strip-extras \
      --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
      --no-emit-options $part --output-file "requirements/$set.txt" "requirements/$set.in"
done
