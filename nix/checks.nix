# `nix flake check`: every output builds with its own tests, and the rest of the tests run on a copy of the tree.
{
  lib,
  pkgs,
  scope,
}:
let
  inherit (scope)
    command
    crosslayer
    env
    programs
    server
    sites
    sources
    stub
    wire
    ;
  inTree =
    name: inputs: script:
    pkgs.runCommand "crosslayer-${name}"
      {
        nativeBuildInputs = [ env ] ++ inputs;
        env.CROSSLAYER_SERVER_BIN = lib.getExe server;
      }
      ''
        cp --recursive ${sources.everything} tree
        chmod --recursive u+w tree
        cd tree
        export HOME="$TMPDIR" PYTHONPATH="$PWD/lib"
        ${script}
        touch "$out"
      '';
in
{
  # Go: vet and tests are part of the build.
  inherit server stub wire;

  # Python: the build compares nixpkgs with the ranges in pyproject.toml.
  inherit command crosslayer sites;

  inherit (programs) lab reproduce test;

  unit = inTree "unit-tests" [ ] "pytest -p no:cacheprovider tests/unit";

  # The analysis notebooks run on the committed campaigns, cell by cell.
  notebooks = inTree "notebooks" [ ] ''
    pytest -p no:cacheprovider tests/notebooks
    pytest -p no:cacheprovider --nbval $(find notebooks -name '*.ipynb' ! -name run_all.ipynb)
  '';

  format = inTree "format" [ pkgs.go_1_26 pkgs.nixfmt ] ''
    nixfmt --check flake.nix nix/*.nix
    ruff format --check lib tests data nix
    test -z "$(gofmt -l emulation | tee /dev/stderr)"
  '';

  lint = inTree "lint" [ pkgs.shellcheck ] ''
    ruff check lib tests data nix
    mypy
    mypy --strict nix/versions.py tests/vm
    shellcheck nix/*.sh
  '';

  smoke = pkgs.callPackage ./vm-test.nix { inherit command env; };
}
