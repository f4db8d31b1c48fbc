# `nix flake check`: build every output, and run the tests on a copy of the tree. `nix run .#check` also runs the test with KVM.
{
  go,
  lib,
  pkgs,
  programs,
  python,
  sources,
}:
let
  inTree = on sources.everything;
  on =
    tree: name: inputs: script:
    pkgs.runCommand "crosslayer-${name}"
      {
        nativeBuildInputs = [ python.env ] ++ inputs;
        env = {
          inherit (programs.variables.here) CROSSLAYER_SHARE;
        };
      }
      ''
        cp --recursive ${tree} tree
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

    # Run the analysis notebooks on the committed campaigns, and compare the output of each cell.
    notebooks = inTree "notebooks" [ ] ''
      pytest -p no:cacheprovider --nbval $(find notebooks -name '*.ipynb' ! -name run_all.ipynb ! -name cluster.ipynb)
    '';
  };

  onLinux = {
    inherit (go) server stub uml-link;
    inherit (programs) reproduce share test;

    # Compare the versions with setup/pinned.in, which the tests without Nix and `crosslayer doctor` use.
    versions = on sources.code "versions" [ ] "python nix/versions.py setup/pinned.in";

    # Format, vet, staticcheck and tests.
    go = go.tests;

    unit = inTree "unit-tests" [ ] "pytest -p no:cacheprovider tests/unit tests/notebooks";

    format = on sources.code "format" [ format.nixfmt ] "nixfmt --check flake.nix nix/*.nix";

    # The steps of `make lint`, except that for Go, which is in `go`.
    lint =
      on sources.code "lint"
        [
          pkgs.actionlint
          pkgs.import-linter
          pkgs.shellcheck
        ]
        ''
          mkdir --parents .venv/bin
          for tool in lint-imports mypy ruff shellcheck; do
            ln --symbolic "$(type -P "$tool")" .venv/bin
          done
          bash setup/lint python scripts
          actionlint -shellcheck shellcheck .github/workflows/*.yml
        '';
  };

  # `nix fmt`: format Nix, Python and Go.
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
