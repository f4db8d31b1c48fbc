# papermill, with an output path where the user gives none.
{ env, writeShellApplication }:
writeShellApplication {
  name = "papermill";
  runtimeInputs = [ env ];
  text = builtins.readFile ./papermill.sh;
}
