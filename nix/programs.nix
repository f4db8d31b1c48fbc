# The programs behind `nix run`: shell scripts beside this file, with their surroundings filled in.
{
  lib,
  env,
  papermill,
  sources,
  tools,
  variables,
  writeShellApplication,
}:
let
  program =
    name:
    {
      description,
      scripts,
      environment,
    }:
    writeShellApplication {
      name = "crosslayer-${name}";
      runtimeInputs = [
        papermill # before the environment, whose own papermill it calls
        env
      ]
      ++ tools.measuring
      ++ tools.looking;
      runtimeEnv = variables.programs // environment;
      text = lib.concatMapStringsSep "\n" builtins.readFile scripts;
      meta = { inherit description; };
    };
  reading = variables.files // {
    WORKPLACE = "${sources.workplace}";
  };
in
lib.mapAttrs program {
  reproduce = {
    description = "Measure on this machine, draw every figure and check every claim, into the current folder";
    scripts = [
      ./workplace.sh
      ./reproduce.sh
    ];
    environment = reading;
  };
  lab = {
    description = "Open the notebooks in JupyterLab";
    scripts = [
      ./workplace.sh
      ./lab.sh
    ];
    environment = reading;
  };
  test = {
    description = "Run the tests of this revision: unit, integration, notebooks";
    scripts = [ ./test.sh ];
    environment = {
      TREE = "${sources.everything}";
    };
  };
}
