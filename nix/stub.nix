# The stub: a DNS forwarder on a local address, over every transport.
{
  lib,
  buildGo126Module,
  requirements,
  sources,
}:
buildGo126Module {
  pname = "crosslayer-stub";
  inherit (requirements.project) version;

  src = sources.stub;
  # `nix hash path vendor` after `go mod vendor`; tests/unit/test_flake.py recomputes it without Nix.
  vendorHash = "sha256-meQLf2KAPl5dEEqAz69vG5+iVCzFoLRCEPhRq8o+CQc=";

  env.CGO_ENABLED = 0;

  preCheck = ''
    go vet ./...
  '';

  # Go names the program after its folder.
  postInstall = ''
    mv "$out/bin/stub" "$out/bin/crosslayer-stub"
  '';

  meta = {
    description = "DNS forwarder that keeps or resets its session on command and tells what each query cost";
    license = lib.licenses.asl20;
    mainProgram = "crosslayer-stub";
    platforms = lib.platforms.linux;
  };
}
