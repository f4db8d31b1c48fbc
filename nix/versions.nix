# What the pinned nixpkgs gives: `nix eval --json .#crosslayer.versions`; versions.py compares it with requirements.lock.
{
  lib,
  pkgs,
  requirements,
}:
{
  python = pkgs.python313.version;
  packages = lib.genAttrs requirements.all (name: pkgs.python313Packages.${name}.version);
}
