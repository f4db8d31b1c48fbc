# Kernel of the guest for virtual time (docs/reference/clocks.md). Without Nix, setup/guest builds it.
{
  lib,
  stdenv,
  bc,
  bison,
  flex,
  linuxKernel,
  perl,
}:
let
  inherit (linuxKernel.kernels.linux_6_18) version src;
  parts = ../emulation/cmd/crosslayer-guest;
  # Virtual time that one read of the virtual clock takes, ns; the same value as in setup/guest.
  clockReadNs = 16;
  about = builtins.toJSON {
    inherit version;
    clock_read_ns = clockReadNs;
    source = "nixpkgs linux_6_18 ${version}";
    source_sha256 = src.outputHash;
  };
in
stdenv.mkDerivation {
  pname = "crosslayer-linux";
  inherit version src;

  depsBuildBuild = [ stdenv.cc ];
  nativeBuildInputs = [
    bc
    bison
    flex
    perl
  ];
  strictDeps = true;
  enableParallelBuilding = true;
  # The kernel's build sets its own compiler flags.
  hardeningDisable = [ "all" ];

  # `unset src`: the kernel's makefiles use a variable of this name. The patch is for a later kernel. If it does not apply,
  # the guest is slower, but otherwise the same.
  postPatch = ''
    patchShebangs scripts
    unset src
    substituteInPlace arch/um/include/linux/time-internal.h \
      --replace-fail "#define TIMER_MULTIPLIER 256" "#define TIMER_MULTIPLIER ${toString clockReadNs}"
    patched=
    if patch --dry-run --fuzz=0 --strip=1 < ${parts}/kernel.patch; then
      patch --strip=1 < ${parts}/kernel.patch
      patched=$(sha256sum ${parts}/kernel.patch | cut --delimiter=' ' --fields=1)
    fi
    echo "$patched" > patched
  '';

  makeFlags = [
    "ARCH=um"
    "SUBARCH=x86_64"
    "KBUILD_BUILD_HOST=crosslayer"
    "KBUILD_BUILD_TIMESTAMP=1970-01-01"
    "KBUILD_BUILD_USER=crosslayer"
  ];

  configurePhase = ''
    runHook preConfigure
    make $makeFlags KCONFIG_ALLCONFIG=${parts}/kernel.config allnoconfig
    for wanted in HOSTFS NET_SCH_NETEM OVERLAY_FS UML_TIME_TRAVEL_SUPPORT USER_NS VETH; do
      grep --line-regexp "CONFIG_$wanted=y" .config
    done
    runHook postConfigure
  '';

  buildFlags = [ "linux" ];

  installPhase = ''
    runHook preInstall
    install -D linux "$out/bin/crosslayer-linux"
    config=$(grep '^CONFIG_' .config | sort | sha256sum | cut --delimiter=' ' --fields=1)
    echo ${lib.escapeShellArg about} |
      sed "s/^{/{\"config_sha256\":\"$config\",\"patch_sha256\":\"$(cat patched)\",/" > "$out/bin/crosslayer-linux.json"
    runHook postInstall
  '';

  meta = {
    description = "Linux as an ordinary process whose clock stands still while anything computes";
    homepage = "https://docs.kernel.org/virt/uml/user_mode_linux_howto_v2.html";
    license = lib.licenses.gpl2Only;
    mainProgram = "crosslayer-linux";
    platforms = [ "x86_64-linux" ];
  };
}
