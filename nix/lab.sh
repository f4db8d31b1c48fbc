# shellcheck shell=bash
# nix run .#lab: options are JupyterLab's.
exec jupyter lab notebooks "$@"
