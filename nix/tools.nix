# Programs by purpose, named once in tools.json, which tests/unit/test_flake.py compares with what the code calls.
{ lib, pkgs }:
lib.mapAttrs (_purpose: packages: map (name: pkgs.${name}) (lib.attrNames packages)) (
  lib.importJSON ./tools.json
)
