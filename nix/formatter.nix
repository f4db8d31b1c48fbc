# `nix fmt`: Nix, Python and Go.
{
  go_1_26,
  nixfmt,
  ruff,
  treefmt,
}:
treefmt.withConfig {
  name = "crosslayer-format";
  runtimeInputs = [
    go_1_26
    nixfmt
    ruff
  ];
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
}
