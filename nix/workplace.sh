# shellcheck shell=bash
# Notebooks and campaigns into the current folder, unless it is a checkout or has them from the last time.
for source in "$WORKPLACE"/notebooks "$WORKPLACE"/data/raw/*; do
  part=${source#"$WORKPLACE"/}
  if [ ! -e "$part" ] && [ -e "$source" ]; then
    echo "== $part into $PWD" >&2
    mkdir -p "$(dirname "$part")"
    cp --recursive --no-preserve=mode,ownership "$source" "$part"
  fi
done
