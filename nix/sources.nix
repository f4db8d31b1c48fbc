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
  goModule =
    root:
    from root [
      (root + "/go.mod")
      (fileset.maybeMissing (root + "/go.sum"))
      (fileset.fileFilter (file: file.hasExt "go") root)
    ];
in
{
  server = goModule ../emulation/server;
  stub = goModule ../emulation/stub;
  wire = goModule ../emulation/wire;

  # The Python distribution.
  library = from ../. [
    ../LICENSE
    ../README.md
    ../lib/crosslayer
    ../pyproject.toml
  ];

  # What the library reads besides itself, and what it is judged against.
  specifications = from ../. [
    ../data/published
    ../emulation/profiles.toml
    ../sites
  ];

  # What a reader works on: notebooks, and the campaigns they analyse.
  workplace = from ../. [
    (fileset.maybeMissing ../data/raw)
    ../notebooks
  ];

  # What the tests and linters read.
  everything = from ../. [
    ../data
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
  ];
}
