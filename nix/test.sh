# shellcheck shell=bash
# nix run .#test [-- tests/unit]: options are pytest's. Tests write beside themselves, so they get a copy of their own.
set -e
folder=$(mktemp --directory)
trap 'rm --recursive "$folder"' EXIT
cp --recursive "$TREE/." "$folder"
chmod --recursive u+w "$folder"
cd "$folder"
PYTHONPATH="$folder/lib" python -m pytest "$@"
