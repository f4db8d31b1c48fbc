# `nix develop`: everything a reader and a developer call, at the pinned versions. `.#analysis`: without what measures.
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
    programs.papermill # before the environment, whose own papermill it calls
    python.env
  ]
  ++ lib.optionals measuring (lib.concatLists (lib.attrValues programs.tools))
  ++ further;

  env = own.python // (if measuring then own.measuring else own.analysis) // variables;

  shellHook = ''
    # In a checkout, also below its top, its own library counts; the host's packages count nowhere.
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
