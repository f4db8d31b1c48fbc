# What each output is made from, and nothing else: a change elsewhere rebuilds nothing.
{ lib }:
let
  inherit (lib) fileset;
  from =
    root: files:
    fileset.toSource {
      inherit root;
      fileset = fileset.unions files;
    };
in
{
  emulation = from ../emulation [
    ../emulation/go.mod
    ../emulation/go.sum
    (fileset.fileFilter (file: file.hasExt "go") ../emulation)
  ];

  # The Python distribution.
  library = from ../. [
    ../LICENSE
    ../README.md
    ../lib/crosslayer
    ../pyproject.toml
  ];

  # What the library reads besides itself, and what it is judged against; where a checkout has it.
  specifications = from ../. [
    ../data/published
    ../emulation/profiles.toml
    ../emulation/traces
    ../sites
  ];

  # What a reader works on: notebooks, and the campaigns they analyse.
  workplace = from ../. [
    (fileset.maybeMissing ../data/raw)
    ../notebooks
  ];

  # What the tests and linters read.
  everything = from ../. [
    ../.ci
    ../data
    ../docs
    ../emulation
    ../flake.lock
    ../flake.nix
    ../lib
    ../LICENSE
    ../Makefile
    ../nix
    ../notebooks
    ../pyproject.toml
    ../README.md
    ../requirements.lock
    ../setup
    ../sites
    ../tests
    (fileset.maybeMissing ../ARCHITECTURE.md)
    (fileset.maybeMissing ../CITATION.cff)
    (fileset.maybeMissing ../CONTRIBUTING.md)
    (fileset.maybeMissing ../figures)
  ];
}
