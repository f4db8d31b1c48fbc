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
  codeFiles = [
    ../.ci
    ../.github
    ../.gitignore
    ../CHANGELOG.md
    ../Containerfile
    ../.containerignore
    ../LICENSE
    ../Makefile
    ../README.md
    ../SECURITY.md
    ../data/published
    ../docs
    ../emulation
    ../flake.lock
    ../flake.nix
    ../lib
    ../nix
    ../pyproject.toml
    ../renovate.json
    ../requirements.lock
    ../setup
    ../sites
    ../tests
    (fileset.maybeMissing ../.zenodo.json)
    (fileset.maybeMissing ../ARCHITECTURE.md)
    (fileset.maybeMissing ../ARTIFACT.md)
    (fileset.maybeMissing ../CITATION.cff)
    (fileset.maybeMissing ../CONTRIBUTING.md)
    (fileset.maybeMissing ../LABBOOK.md)
    (fileset.fileFilter (file: file.hasExt "py") ../data)
  ];
in
{
  emulation = from ../emulation [
    ../emulation/go.mod
    ../emulation/go.sum
    (fileset.fileFilter (file: file.hasExt "go") ../emulation)
  ];

  # The Python distribution, with the files that travel in its wheel (setup/wheel.py).
  library = from ../. [
    ../LICENSE
    ../README.md
    ../data/published
    ../emulation
    ../lib/crosslayer
    ../pyproject.toml
    ../setup/wheel.py
    ../sites
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

  # What the linters read.
  code = from ../. codeFiles;

  # What the tests read: that, and 110 MB of campaigns, figures and notebooks.
  everything = from ../. (
    codeFiles
    ++ [
      ../data
      ../notebooks
      (fileset.maybeMissing ../figures)
    ]
  );
}
