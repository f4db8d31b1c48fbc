{
  description = "What encrypted DNS costs a web user, and what sharing QUIC between DNS and HTTP/3 gives back";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      # Darwin can analyse, but not measure.
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      built = nixpkgs.lib.genAttrs systems (
        system:
        import ./nix {
          pkgs = nixpkgs.legacyPackages.${system};
          revision = self.rev or self.dirtyRev or "unknown";
        }
      );
      each = output: builtins.mapAttrs (_system: outputs: outputs.${output}) built;
    in
    {
      packages = each "packages";
      devShells = each "devShells";
      apps = each "apps";
      checks = each "checks";
      formatter = each "formatter";
    };
}
