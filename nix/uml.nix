# User-Mode Linux kernel with netem, for machines whose kernel has no netem. All its drivers are built in.
{
  lib,
  stdenv,
  bc,
  bison,
  flex,
  linuxKernel,
  perl,
}:
stdenv.mkDerivation {
  pname = "linux-uml";
  inherit (linuxKernel.kernels.linux_6_18) version src;

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

  # `unset src`: the kernel's makefiles use a variable of this name.
  postPatch = ''
    patchShebangs scripts
    unset src
  '';

  makeFlags = [
    "ARCH=um"
    "SUBARCH=x86_64"
    "KBUILD_BUILD_HOST=nix"
    "KBUILD_BUILD_TIMESTAMP=1970-01-01"
    "KBUILD_BUILD_USER=nix"
  ];

  configurePhase = ''
    runHook preConfigure
    make $makeFlags KCONFIG_ALLCONFIG=${./uml.config} allnoconfig
    for wanted in BRIDGE HIGH_RES_TIMERS HOSTFS NET_SCH_NETEM UML_NET_VECTOR; do
      grep --line-regexp "CONFIG_$wanted=y" .config
    done
    runHook postConfigure
  '';

  buildFlags = [ "linux" ];

  # crosslayer requires a folder of modules and their dependencies. There are no modules, so the file is empty.
  installPhase = ''
    runHook preInstall
    install -D linux "$out/bin/linux.uml"
    install -D --mode=444 /dev/null "$out/lib/modules/$version/modules.dep"
    runHook postInstall
  '';

  meta = {
    description = "Linux as an ordinary process, with the queueing discipline netem";
    homepage = "https://docs.kernel.org/virt/uml/user_mode_linux_howto_v2.html";
    license = lib.licenses.gpl2Only;
    mainProgram = "linux.uml";
    platforms = [ "x86_64-linux" ];
  };
}
