# shellcheck shell=bash
# nix run .#reproduce [-- -p size smoke]: options are papermill's. First which way it goes, and how to get the other.
{ crosslayer doctor || true; } | tail -n 1 >&2
mkdir -p build/notebooks
papermill notebooks/run_all.ipynb build/notebooks/run_all.ipynb --cwd notebooks --stdout-file - "$@"
