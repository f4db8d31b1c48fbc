# shellcheck shell=bash
# Notebooks and data into the current folder, unless it is a checkout or has them from the last time.
for part in notebooks data/raw/reference; do
  if [ ! -e "$part" ] && [ -e "$WORKPLACE/$part" ]; then
    echo "== $part into $PWD" >&2
    mkdir -p "$(dirname "$part")"
    cp --recursive --no-preserve=mode,ownership "$WORKPLACE/$part" "$part"
  fi
done
