# The Python library. The build checks that nixpkgs satisfies every range in pyproject.toml.
{
  lib,
  python313Packages,
  requirements,
  sources,
  versions,
}:
python313Packages.buildPythonPackage {
  pname = "crosslayer";
  inherit (requirements.project) version;
  pyproject = true;

  src = sources.library;

  build-system = lib.attrVals requirements.build python313Packages;
  dependencies = lib.attrVals requirements.runtime python313Packages;

  # The tests want the whole tree and the server: checks.nix runs them.
  doCheck = false;
  pythonImportsCheck = [
    "crosslayer"
    "crosslayer.cli"
  ];

  passthru = { inherit versions; };

  meta = {
    inherit (requirements.project) description;
    license = lib.licenses.asl20;
    mainProgram = "crosslayer";
    platforms = lib.platforms.linux;
  };
}
