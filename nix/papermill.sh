#!/usr/bin/env bash
# papermill NOTEBOOK [OPTION]...: as papermill, with an output path where none is given.
# Stock papermill refuses that on a terminal, and in a pipe it writes the notebook to standard output.
# Every other command line is passed on as it is.
set -euo pipefail

# papermill's options by the number of words that follow; those of no word need not be known, but these ask for no run.
two=' -p --parameters -r --parameters_raw '
one=' -b --parameters_base64 -f --parameters_file -k --kernel -l --language -y --parameters_yaml
  --autosave-cell-every --cwd --engine --execution-timeout --log-level --start-timeout --start_timeout --stderr-file --stdout-file '
no_run=' -h --help --help-notebook --version '

only_input() { # only_input ARGUMENT...: is it one notebook, and nothing else but options with all their words?
  local given=0 all=$#
  while [ $# -gt 0 ]; do
    case $1 in
      --*=*) shift 1 ;;
      -?*)
        if [[ $no_run == *[[:space:]]"$1"[[:space:]]* ]]; then return 1; fi
        if [[ $two == *[[:space:]]"$1"[[:space:]]* ]]; then
          [ $# -ge 3 ] || return 1
          shift 3
        elif [[ $one == *[[:space:]]"$1"[[:space:]]* ]]; then
          [ $# -ge 2 ] || return 1
          shift 2
        else
          shift 1
        fi
        ;;
      *.ipynb)
        input=$1
        at=$((all - $# + 1))
        given=$((given + 1))
        shift
        ;;
      *) return 1 ;;
    esac
  done
  [ $given -eq 1 ]
}

if only_input "$@"; then
  # Beside the folder of the notebooks, where `make reproduce` puts it; for any other notebook, here.
  folder=$(dirname "$input")
  root=.
  if [ "$(basename "$(realpath "$folder")")" = notebooks ]; then root=$folder/..; fi
  output=$(realpath --canonicalize-missing --relative-to=. "$root/build/notebooks/$(basename "$input")")
  mkdir -p "$(dirname "$output")"
  echo "papermill: writing $output" >&2
  own=("$output")
  case " $*" in *" --cwd"*) ;; *) own+=(--cwd "$folder") ;; esac
  exec papermill "${@:1:at}" "${own[@]}" "${@:at+1}"
fi
exec papermill "$@"
