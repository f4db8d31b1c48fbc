# The pages under test, built: the bytes that the server sends.
{
  env,
  runCommand,
  sources,
}:
runCommand "crosslayer-sites" { nativeBuildInputs = [ env ]; } ''
  python - "${sources.specifications}/sites" "$out" <<'PYTHON'
  import sys
  from pathlib import Path

  from crosslayer.pages import build

  build(Path(sys.argv[1]), Path(sys.argv[2]))
  PYTHON
''
