# The one Python environment: the library, JupyterLab, papermill, nbval, the linters and all they need.
{
  lib,
  crosslayer,
  python313,
  requirements,
}:
python313.withPackages (packages: [ crosslayer ] ++ lib.attrVals requirements.all packages)
