# `nix develop`: all programs for readers and developers, in the pinned versions. `.#analysis` lacks those for measurement.
{
  lib,
  pkgs,
  programs,
  python,
}:
{
  further ? [ ],
  measuring ? false,
  variables ? { },
}:
let
  own = programs.variables;
in
pkgs.mkShellNoCC {
  packages = [
    programs.papermill # precedes the environment, whose papermill it calls
    python.env
  ]
  ++ lib.optionals measuring (lib.concatLists (lib.attrValues programs.tools))
  ++ further;

  env = own.python // (if measuring then own.measuring else own.analysis) // variables;

  shellHook = ''
    # In every folder of a checkout, Python uses the checkout's library. It never uses the host's packages.
    unset PYTHONHOME PYTHONPATH
    crosslayer_top=$PWD
    while [ "$crosslayer_top" != / ] && [ ! -d "$crosslayer_top/lib/crosslayer" ]; do
      crosslayer_top=$(dirname "$crosslayer_top")
    done
    if [ "$crosslayer_top" != / ]; then export PYTHONPATH="$crosslayer_top/lib"; fi
    unset crosslayer_top
    case $- in
      *i*)
        echo "The pinned environment of crosslayer is ready. Next:"
        echo "  crosslayer doctor                    what this machine can do"
        echo "  papermill notebooks/run_all.ipynb    measure, draw every figure, check every claim"
        ;;
    esac
  '';
}
