# The `crosslayer` command with all it needs: `nix run .#default -- doctor`.
{
  lib,
  crosslayer,
  env,
  makeWrapper,
  runCommand,
  tools,
  variables,
}:
let
  defaults = lib.concatLists (
    lib.mapAttrsToList (name: value: [
      "--set-default"
      name
      value
    ]) (variables.programs // variables.files)
  );
in
runCommand "crosslayer-${crosslayer.version}"
  {
    nativeBuildInputs = [ makeWrapper ];
    meta = {
      inherit (crosslayer.meta)
        description
        license
        mainProgram
        platforms
        ;
    };
  }
  ''
    makeWrapper ${env}/bin/crosslayer "$out/bin/crosslayer" \
      --prefix PATH : ${lib.makeBinPath (tools.measuring ++ tools.looking)} \
      ${lib.escapeShellArgs defaults}
  ''
