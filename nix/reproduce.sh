# shellcheck shell=bash
# nix run .#reproduce [-- -p profile smoke]: options are papermill's.
mkdir -p build/notebooks
papermill notebooks/run_all.ipynb build/notebooks/run_all.ipynb --cwd notebooks "$@"
echo "Figures: $PWD/figures/index.html"
