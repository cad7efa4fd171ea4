//! The program `helm`, which `tests/helm/fetch_helm.py` fetches into a folder of its own below the target folder.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the path of the program. The first test that needs it fetches it, and others wait. Blocks.
pub fn install() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm-program");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helm/fetch_helm.py");
    let output = Command::new("python3").arg(script).arg(&folder).output();
    let output = output.expect("python3 is missing (apt-get install python3 python3-pip)");
    assert!(output.status.success(), "helm cannot be fetched: {}", String::from_utf8_lossy(&output.stderr));
    folder.join("helm")
}
