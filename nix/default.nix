# All outputs of the flake for one system, made by the other files of this folder.
{ pkgs, revision }:
let
  inherit (pkgs) lib;
  inherit (pkgs.stdenv.hostPlatform) isLinux isx86_64;
  # Only Linux can measure; other systems can analyse. User-Mode Linux runs on x86-64 only.
  onLinux = lib.optionalAttrs isLinux;
  onX86 = lib.optionalAttrs (isLinux && isx86_64);

  inherit (lib.importTOML ../pyproject.toml) project;
  listed = lib.importJSON ./packages.json;
  sources = import ./sources.nix { inherit lib; };
  python = import ./python.nix {
    inherit
      lib
      listed
      pkgs
      project
      sources
      ;
  };
  go = pkgs.callPackage ./go.nix { inherit project sources; };
  kernel = pkgs.callPackage ./kernel.nix { };
  uml = pkgs.callPackage ./uml.nix { };
  programs = import ./programs.nix {
    inherit
      go
      lib
      listed
      pkgs
      python
      revision
      sources
      uml
      ;
  };
  shell = import ./shell.nix {
    inherit
      lib
      pkgs
      programs
      python
      ;
  };
  vmTest = pkgs.callPackage ./vm-test.nix {
    inherit (programs) command reproduce;
    inherit (python) env;
  };
  checking = import ./checks.nix {
    inherit
      go
      lib
      pkgs
      programs
      python
      sources
      ;
  };
  app = program: {
    type = "app";
    program = lib.getExe program;
    meta = { inherit (program.meta) description; };
  };
in
{
  packages = {
    inherit (python) env library;
    crosslayer = programs.command;
    default = programs.command;
  }
  // onLinux {
    inherit (go)
      guest
      server
      stub
      uml-link
      ;
    inherit (programs) share;
    # Needs KVM, so `nix flake check` does not build it. `nix run .#check` builds it if the machine has KVM.
    vm-test = vmTest;
  }
  // onX86 { inherit kernel uml; };

  devShells = {
    analysis = shell { };
    default = shell { measuring = isLinux; };
  }
  // onX86 {
    # Has the guest's kernel in PATH. A kernel in the checkout takes precedence.
    guest = shell {
      measuring = true;
      further = [ kernel ];
      variables = programs.variables.uml;
    };
    uml = shell {
      measuring = true;
      variables = programs.variables.uml;
    };
  };

  apps = {
    default = app programs.command;
    lab = app programs.lab;
  }
  // onLinux {
    check = app programs.check;
    reproduce = app programs.reproduce;
    test = app programs.test;
  };

  inherit (checking) formatter;
  checks = checking.everywhere // onLinux checking.onLinux;
}
