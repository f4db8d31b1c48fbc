# `nix flake check`: every output builds, and the tests run on a copy of the tree. What wants KVM is in `nix run .#check`.
{
  go,
  lib,
  pkgs,
  programs,
  python,
  sources,
}:
let
  inTree =
    name: inputs: script:
    pkgs.runCommand "crosslayer-${name}"
      {
        nativeBuildInputs = [ python.env ] ++ inputs;
        env = {
          inherit (programs.variables.here) CROSSLAYER_SHARE;
        };
      }
      ''
        cp --recursive ${sources.everything} tree
        chmod --recursive u+w tree
        cd tree
        export HOME="$TMPDIR" PYTHONPATH="$PWD/lib"
        ${script}
        touch "$out"
      '';
  format = lib.genAttrs [ "go_1_26" "nixfmt" "ruff" ] (name: pkgs.${name});
in
{
  everywhere = {
    inherit (programs) command lab;
    inherit (python) library;

    # The analysis notebooks run on the committed campaigns, cell by cell.
    notebooks = inTree "notebooks" [ ] ''
      pytest -p no:cacheprovider --nbval $(find notebooks -name '*.ipynb' ! -name run_all.ipynb ! -name cluster.ipynb)
    '';
  };

  onLinux = {
    inherit (go) server stub wire;
    inherit (programs) reproduce share test;

    # Format, vet, staticcheck and tests.
    go = go.tests;

    unit = inTree "unit-tests" [ ] "pytest -p no:cacheprovider tests/unit tests/notebooks";

    format = inTree "format" [ format.nixfmt ] ''
      nixfmt --check flake.nix nix/*.nix
      ruff format --check lib tests data
    '';

    lint =
      inTree "lint"
        [
          pkgs.import-linter
          pkgs.shellcheck
        ]
        ''
          ruff check lib tests data
          mypy
          mypy --strict tests/vm
          lint-imports
          shellcheck .ci/run nix/*.sh setup/{as-user,environments,go,lint,system-packages,test}
        '';
  };

  # `nix fmt`: Nix, Python and Go.
  formatter = pkgs.treefmt.withConfig {
    name = "crosslayer-format";
    runtimeInputs = lib.attrValues format;
    settings = {
      on-unmatched = "info";
      formatter = {
        nixfmt = {
          command = "nixfmt";
          includes = [ "*.nix" ];
        };
        ruff = {
          command = "ruff";
          options = [ "format" ];
          includes = [ "*.py" ];
        };
        gofmt = {
          command = "gofmt";
          options = [ "-w" ];
          includes = [ "*.go" ];
        };
      };
    };
  };
}
