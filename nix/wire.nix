# The init of the User-Mode Linux guest that stands in for netem where the host's kernel has none.
{
  lib,
  buildGo126Module,
  requirements,
  sources,
}:
buildGo126Module {
  pname = "crosslayer-wire";
  inherit (requirements.project) version;

  src = sources.wire;
  vendorHash = null; # it uses the standard library only

  # Static: it is the first process of a guest.
  env.CGO_ENABLED = 0;

  preCheck = ''
    go vet ./...
  '';

  postInstall = ''
    mv "$out/bin/wire" "$out/bin/crosslayer-wire"
  '';

  meta = {
    description = "Init of the guest that bridges both ends of an emulated link";
    license = lib.licenses.asl20;
    mainProgram = "crosslayer-wire";
    platforms = lib.platforms.linux;
  };
}
