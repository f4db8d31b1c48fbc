# pyproject.toml is where requirements are written down, for Nix as for pip; nixpkgs has each under its own name.
{ lib }:
let
  inherit (lib.importTOML ../pyproject.toml) build-system project;
  # "polars>=1.30,<2" -> "polars"
  nameOf = requirement: builtins.head (builtins.match "([A-Za-z0-9-]+).*" requirement);
  names = map nameOf;
  extras = lib.concatLists (lib.attrValues project.optional-dependencies);
in
{
  inherit project;
  build = names build-system.requires;
  runtime = names project.dependencies;
  all = lib.unique (names (build-system.requires ++ project.dependencies ++ extras));
}
