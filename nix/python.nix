# Python: the library and its environment. packages.json has the name of each requirement in nixpkgs.
{
  lib,
  listed,
  pkgs,
  project,
  sources,
}:
let
  inherit (pkgs) python313;
  inherit (pkgs.stdenv.hostPlatform) isLinux;
  given = python313.pkgs;

  # Packages that nixpkgs lacks: wheels of requirements.lock.
  own = lib.mapAttrs (
    pname: wheel:
    given.buildPythonPackage {
      inherit pname;
      inherit (wheel) version;
      format = "wheel";
      src = pkgs.fetchPypi {
        inherit pname;
        inherit (wheel) hash version;
        format = "wheel";
        dist = wheel.tag;
        python = wheel.tag;
      };
      dependencies = map named wheel.dependencies;
      pythonImportsCheck = [ pname ];
    }
  ) listed.own;
  named = attribute: own.${attribute} or given.${attribute};
  group =
    name:
    map named (
      lib.attrValues (
        lib.filterAttrs (
          requirement: _: isLinux || !lib.elem requirement listed.python.linux_only
        ) listed.python.${name}
      )
    );

  # The build checks the versions of nixpkgs against every range in pyproject.toml.
  library = given.buildPythonPackage {
    pname = "crosslayer";
    inherit (project) version;
    pyproject = true;
    src = sources.library;

    build-system = group "build";
    dependencies = group "runtime";

    # The tests need the whole tree and the server, so checks.nix runs them.
    doCheck = false;
    pythonImportsCheck = [
      "crosslayer"
      "crosslayer.cli"
    ];

    meta = {
      inherit (project) description;
      license = lib.licenses.asl20;
      mainProgram = "crosslayer";
      platforms = lib.platforms.linux ++ lib.platforms.darwin;
    };
  };
in
{
  inherit library;
  env = python313.withPackages (_: [ library ] ++ group "build" ++ group "runtime" ++ group "extras");
}
