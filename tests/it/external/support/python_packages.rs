//! Packages from PyPI: those of a file of requirements, in a folder of their own below the target folder.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// Packages of `tests/NAME/requirements.txt`.
pub struct PythonPackages(&'static str);

impl PythonPackages {
    /// Installs the packages, once even if several tests need them, and again when the required versions change. Blocks.
    pub fn install(name: &'static str) -> Self {
        let packages = Self(name);
        let requirements_file = packages.source().join("requirements.txt");
        let requirements = fs::read_to_string(&requirements_file).unwrap();
        let installed_file = packages.folder().join("installed");
        fs::create_dir_all(packages.folder().parent().unwrap()).unwrap();
        let lock = File::create(packages.folder().with_extension("lock")).unwrap();
        lock.lock().unwrap();
        if fs::read_to_string(&installed_file).is_ok_and(|installed| installed == requirements) {
            return packages;
        }
        let _ = fs::remove_dir_all(packages.folder());
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
        let output = pip.arg("--target").arg(packages.folder()).arg("--requirement").arg(requirements_file).output();
        let failure =
            format!("{name} cannot be installed (it needs python3 with pip: sudo apt-get install python3-pip)");
        let output = output.unwrap_or_else(|why| panic!("{failure} [{why}]"));
        assert!(output.status.success(), "{failure}: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(installed_file, requirements).unwrap();
        packages
    }

    /// A command that runs Python with these packages.
    pub fn python(&self) -> Command {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", self.folder()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// The folder `tests/NAME`.
    pub fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.0)
    }

    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.0)
    }
}
