# The Go module: its four programs, built without tests, and a separate check with its tests.
{
  lib,
  buildGo126Module,
  project,
  sources,
}:
let
  build =
    arguments:
    buildGo126Module (
      {
        inherit (project) version;
        src = sources.emulation;
        # After a change of go.mod: `go mod vendor` and `nix hash path vendor` in emulation/.
        # tests/unit/test_flake.py recomputes it without Nix.
        vendorHash = "sha256-inEW9nHbKOPAwzE6ddZBVDHkCiNadh6U2y0QvmvfH8I=";
        overrideModAttrs = _: { name = "crosslayer-go-modules"; }; # same name for all programs: fetched only once
        # Static: crosslayer-guest and crosslayer-uml-link are the first processes of guests.
        env.CGO_ENABLED = 0;
        doCheck = false;
      }
      // arguments
    );
  program =
    name: description:
    build {
      pname = name;
      subPackages = [ "cmd/${name}" ];
      ldflags = [
        "-s"
        "-w"
      ];
      meta = {
        inherit description;
        license = lib.licenses.asl20;
        mainProgram = name;
        platforms = lib.platforms.linux;
      };
    };
in
{
  server = program "crosslayer-server" "DNS over every transport and HTTP/3 pages from one process with one set of ticket keys";
  stub = program "crosslayer-stub" "DNS forwarder on a local address to an upstream over any transport";
  guest = program "crosslayer-guest" "Init of the guest that everything is measured in by the virtual clock";
  uml-link = program "crosslayer-uml-link" "Init of the guest that bridges both ends of an emulated link";

  tests = build {
    pname = "crosslayer-go-tests";
    doCheck = true;
    preCheck = ''
      export HOME="$TMPDIR"
      unformatted=$(gofmt -l cmd internal plugin)
      if [ -n "$unformatted" ]; then
        echo "not formatted: $unformatted" >&2
        exit 1
      fi
      go vet ./...
      go tool staticcheck ./...
    '';
  };
}
