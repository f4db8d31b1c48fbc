#!/usr/bin/env bash
# papermill NOTEBOOK [-p NAME VALUE]...: as papermill, with an output path where none is given.
# Stock papermill refuses that on a terminal, and in a pipe it writes the notebook to standard output.
# Every other command line is passed on as it is.
set -euo pipefail

only_input() { # only_input ARGUMENT...: is it one notebook, and nothing else but parameters?
  [[ ${1-} == *.ipynb ]] || return 1
  shift
  while [[ ${1-} == -p || ${1-} == --parameters ]]; do
    [ $# -ge 3 ] || return 1
    shift 3
  done
  [ $# -eq 0 ]
}

if only_input "$@"; then
  input=$1
  shift
  # Beside the folder of the notebooks, where `make reproduce` puts it; for any other notebook, here.
  folder=$(dirname "$input")
  root=.
  if [ "$(basename "$(realpath "$folder")")" = notebooks ]; then root=$folder/..; fi
  output=$(realpath --canonicalize-missing --relative-to=. "$root/build/notebooks/$(basename "$input")")
  mkdir -p "$(dirname "$output")"
  echo "papermill: writing $output" >&2
  exec papermill "$input" "$output" --cwd "$folder" "$@"
fi
exec papermill "$@"
