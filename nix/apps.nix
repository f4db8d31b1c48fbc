{ lib, programs }:
let
  apps = lib.mapAttrs (_name: program: {
    type = "app";
    program = lib.getExe program;
    meta = { inherit (program.meta) description; };
  }) programs;
in
apps // { default = apps.reproduce; }
