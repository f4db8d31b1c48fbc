# Source files of each output, and no others, so that a change of other files rebuilds nothing.
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

  # The Python distribution, with the files that its wheel contains (setup/wheel.py).
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

  # Files that the library reads, and published values for comparison, in the folders of a checkout.
  specifications = from ../. [
    ../data/published
    ../emulation/profiles.toml
    ../emulation/traces
    ../sites
  ];

  # Files for a reader: notebooks, and the campaigns that they analyse.
  workplace = from ../. [
    (fileset.maybeMissing ../data/raw)
    ../notebooks
  ];

  # Files that the linters read.
  code = from ../. codeFiles;

  # Files that the tests read: the same, and about 90 MB of campaigns, figures and notebooks.
  everything = from ../. (
    codeFiles
    ++ [
      ../data
      ../notebooks
      (fileset.maybeMissing ../figures)
    ]
  );
}
