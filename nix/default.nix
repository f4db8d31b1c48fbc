# Everything the flake offers, for one system: an index of the files beside this one.
{ pkgs, revision }:
let
  inherit (pkgs) lib;
  scope = lib.makeScope pkgs.newScope (self: {
    inherit revision;
    sources = import ./sources.nix { inherit lib; };
    requirements = import ./requirements.nix { inherit lib; };
    versions = import ./versions.nix {
      inherit lib pkgs;
      inherit (self) requirements;
    };
    variables = import ./variables.nix {
      inherit lib pkgs revision;
      inherit (self)
        server
        sources
        stub
        uml
        wire
        ;
    };
    tools = import ./tools.nix { inherit lib pkgs; };

    server = self.callPackage ./server.nix { };
    stub = self.callPackage ./stub.nix { };
    wire = self.callPackage ./wire.nix { };
    uml = self.callPackage ./uml.nix { };
    crosslayer = self.callPackage ./crosslayer.nix { };
    env = self.callPackage ./env.nix { };
    sites = self.callPackage ./sites.nix { };
    command = self.callPackage ./command.nix { };
    papermill = self.callPackage ./papermill.nix { };
    programs = import ./programs.nix {
      inherit lib;
      inherit (pkgs) writeShellApplication;
      inherit (self)
        env
        papermill
        sources
        tools
        variables
        ;
    };
  });
  # User-Mode Linux runs on nothing else; other machines need sch_netem in their kernel.
  onlyX86 = lib.optionalAttrs pkgs.stdenv.hostPlatform.isx86_64;
in
{
  packages = {
    inherit (scope)
      crosslayer
      env
      server
      sites
      stub
      wire
      ;
    default = scope.command;
  }
  // onlyX86 { inherit (scope) uml; };

  devShells = {
    default = scope.callPackage ./shell.nix { };
  }
  // onlyX86 { uml = scope.callPackage ./shell.nix { extraVariables = scope.variables.uml; }; };

  apps = import ./apps.nix {
    inherit lib;
    inherit (scope) programs;
  };

  checks = import ./checks.nix { inherit lib pkgs scope; };

  formatter = scope.callPackage ./formatter.nix { };
}
