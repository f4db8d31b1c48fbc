# The shared-key server: CoreDNS as a module with the plugin coalesce.
{
  lib,
  buildGo126Module,
  requirements,
  sources,
}:
buildGo126Module {
  pname = "crosslayer-server";
  inherit (requirements.project) version;

  src = sources.server;
  # `nix hash path vendor` after `go mod vendor`; tests/unit/test_flake.py recomputes it without Nix.
  vendorHash = "sha256-CjKKF5xOG0Cl3Pec25bFrMOnAmMq0jbLw1RNtKjGWfA=";

  env.CGO_ENABLED = 0;

  preCheck = ''
    go vet ./...
  '';

  # Go names the program after its folder.
  postInstall = ''
    mv "$out/bin/server" "$out/bin/crosslayer-server"
  '';

  meta = {
    description = "DNS over every transport and HTTP/3 pages from one process with one set of ticket keys";
    license = lib.licenses.asl20;
    mainProgram = "crosslayer-server";
    platforms = lib.platforms.linux;
  };
}
