# The `crosslayer` command and the programs of `nix run`, with the tools, files and variables that they need.
{
  go,
  lib,
  listed,
  pkgs,
  python,
  revision,
  sources,
  uml,
}:
let
  inherit (pkgs) chromedriver chromium writeShellApplication;
  inherit (pkgs.stdenv.hostPlatform) isLinux;
  inherit (python) env;

  # Programs by purpose. tests/unit/test_flake.py compares them with the programs that the code calls.
  tools = lib.mapAttrs (_purpose: packages: map (name: pkgs.${name}) (lib.attrNames packages)) listed.tools;
  measuring = lib.optionals isLinux (tools.measuring ++ tools.looking);

  # Files for use without a checkout, with the same layout (lib/crosslayer/resources.py).
  share = pkgs.runCommand "crosslayer-share" { } ''
    mkdir --parents "$out"/{build,data,emulation}
    ln --symbolic ${sources.specifications}/sites "$out"
    ln --symbolic ${sources.specifications}/data/published "$out/data"
    ln --symbolic ${sources.specifications}/emulation/{profiles.toml,traces} "$out/emulation"
    ln --symbolic ${
      lib.concatMapStringsSep " " lib.getExe [
        go.guest
        go.server
        go.stub
        go.uml-link
      ]
    } "$out/build"
  '';

  variables = {
    # The pinned environment takes precedence over the user's Jupyter kernel `python3` and packages.
    python = {
      JUPYTER_PREFER_ENV_PATH = "1";
      PYTHONNOUSERSITE = "1";
    };
    analysis = {
      CROSSLAYER_REVISION = revision;
      CROSSLAYER_SHARE = "${sources.specifications}";
    };
    measuring =
      assert lib.assertMsg (
        lib.versions.major chromium.version == lib.versions.major chromedriver.version
      ) "ChromeDriver ${chromedriver.version} does not fit Chromium ${chromium.version}";
      {
        CROSSLAYER_CHROMEDRIVER = lib.getExe' chromedriver "chromedriver";
        CROSSLAYER_CHROMIUM = lib.getExe' chromium "chromium";
        CROSSLAYER_FIREFOX = lib.getExe pkgs.firefox-esr;
        CROSSLAYER_NAMED = lib.getExe' pkgs.bind "named";
        CROSSLAYER_REVISION = revision;
        CROSSLAYER_SHARE = "${share}";
        # Headless Chromium has no text without a font.
        FONTCONFIG_FILE = "${pkgs.makeFontsConf { fontDirectories = [ pkgs.dejavu_fonts ]; }}";
      };
    # A User-Mode Linux kernel with netem, for hosts without netem. It is built from source, so only the shells `guest` and
    # `uml` have it.
    uml = {
      CROSSLAYER_UML = lib.getExe uml;
      CROSSLAYER_UML_MODULES = "${uml}/lib/modules";
    };
    here = variables.python // (if isLinux then variables.measuring else variables.analysis);
  };

  # Without tools for measurement there is no folder to prefix. makeWrapper would take the next argument after `:` as a folder.
  wrapping =
    lib.optionals (measuring != [ ]) [
      "--prefix"
      "PATH"
      ":"
      (lib.makeBinPath measuring)
    ]
    ++ lib.concatLists (
      lib.mapAttrsToList (name: value: [
        "--set-default"
        name
        value
      ]) variables.here
    );

  # papermill with a default output path.
  papermill = writeShellApplication {
    name = "papermill";
    runtimeInputs = [ env ];
    text = builtins.readFile ./papermill.sh;
  };

  program =
    name:
    {
      description,
      text,
      environment ? { },
    }:
    writeShellApplication {
      name = "crosslayer-${name}";
      runtimeInputs = [
        papermill # precedes the environment, whose papermill it calls
        env
      ]
      ++ measuring;
      runtimeEnv = variables.here // environment;
      text = "unset PYTHONHOME PYTHONPATH\n" + text;
      meta = { inherit description; };
    };
  atWorkplace = description: text: {
    inherit description;
    text = builtins.readFile ./workplace.sh + text;
    environment.WORKPLACE = "${sources.workplace}";
  };
in
{
  inherit
    papermill
    share
    tools
    variables
    ;

  # `nix run . -- doctor`
  command =
    pkgs.runCommand "crosslayer-${python.library.version}"
      {
        nativeBuildInputs = [ pkgs.makeWrapper ];
        meta = {
          inherit (python.library.meta)
            description
            license
            mainProgram
            platforms
            ;
        };
      }
      ''
        makeWrapper ${env}/bin/crosslayer "$out/bin/crosslayer" \
          --unset PYTHONHOME --unset PYTHONPATH \
          ${lib.escapeShellArgs wrapping}
      '';

  reproduce = program "reproduce" (
    atWorkplace "Measure on this machine, draw every figure and check every claim, into the current folder" (
      builtins.readFile ./reproduce.sh
    )
  );

  # Takes JupyterLab's options.
  lab = program "lab" (
    atWorkplace "Open the notebooks in JupyterLab" ''
      exec jupyter lab notebooks "$@"
    ''
  );

  # Takes pytest's options. The tests write into their folder, so they run in a copy.
  test = program "test" {
    description = "Run the tests of this revision: unit, integration, notebooks";
    text = ''
      folder=$(mktemp --directory)
      trap 'rm --recursive "$folder"' EXIT
      cp --recursive "$TREE/." "$folder"
      chmod --recursive u+w "$folder"
      cd "$folder"
      PYTHONPATH="$folder/lib" python -m pytest "$@"
    '';
    environment.TREE = "${sources.everything}";
  };

  # Evaluation cannot determine whether the builder has KVM, so this program does.
  check = program "check" {
    description = "nix flake check and, where there is KVM, the virtual machine that measures";
    text = ''
      nix flake check --print-build-logs "$@"
      if [ -w /dev/kvm ]; then
        nix build --no-link --print-build-logs .#vm-test "$@"
      else
        echo "Left out: the virtual machine that measures (.#vm-test), for want of a writable /dev/kvm." >&2
      fi
    '';
  };
}
