# How the library finds what surrounds it; it reads every one of these names (tests/unit/test_flake.py compares).
{
  lib,
  pkgs,
  revision,
  server,
  sources,
  stub,
  uml,
  wire,
}:
let
  inherit (pkgs) chromedriver chromium;
  fonts = pkgs.makeFontsConf { fontDirectories = [ pkgs.dejavu_fonts ]; };
in
assert lib.assertMsg (
  lib.versions.major chromium.version == lib.versions.major chromedriver.version
) "ChromeDriver ${chromedriver.version} does not fit Chromium ${chromium.version}";
{
  # Programs: the same in a checkout and outside it.
  programs = {
    CROSSLAYER_CHROMEDRIVER = lib.getExe' chromedriver "chromedriver";
    CROSSLAYER_CHROMIUM = lib.getExe' chromium "chromium";
    CROSSLAYER_NAMED = lib.getExe' pkgs.bind "named";
    CROSSLAYER_SERVER_BIN = lib.getExe server;
    CROSSLAYER_STUB_BIN = lib.getExe stub;
    CROSSLAYER_WIRE = lib.getExe wire;
    # Headless Chromium has no text without a font.
    FONTCONFIG_FILE = "${fonts}";
  };

  # netem for a kernel without it: built from source, so only the shell `uml` has it.
  uml = {
    CROSSLAYER_UML = lib.getExe uml;
    CROSSLAYER_UML_MODULES = "${uml}/lib/modules";
  };

  # Files that a checkout has itself.
  files = {
    CROSSLAYER_PROFILES = "${sources.specifications}/emulation/profiles.toml";
    CROSSLAYER_PUBLISHED = "${sources.specifications}/data/published";
    CROSSLAYER_REVISION = revision;
    CROSSLAYER_SITES = "${sources.specifications}/sites";
  };
}
