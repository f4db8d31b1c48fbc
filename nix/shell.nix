# `nix develop`: everything a reader and a developer call, at the pinned versions.
{
  lib,
  env,
  mkShellNoCC,
  papermill,
  tools,
  variables,
  extraVariables ? { },
}:
mkShellNoCC {
  packages = [
    papermill # before the environment, whose own papermill it calls
    env
  ]
  ++ lib.concatLists (lib.attrValues tools);

  env = variables.programs // extraVariables;

  shellHook = ''
    if [ -d lib/crosslayer ]; then
      # In a checkout its own files count, not those of the last build.
      export PYTHONPATH="$PWD/lib''${PYTHONPATH:+:$PYTHONPATH}"
    else
      ${lib.toShellVars variables.files}
      export ${toString (lib.attrNames variables.files)}
    fi
    case $- in
      *i*)
        echo "The pinned environment of crosslayer is ready. Next:"
        echo "  crosslayer doctor                    what this machine can do"
        echo "  papermill notebooks/run_all.ipynb    measure, draw every figure, check every claim"
        ;;
    esac
  '';
}
