//! The container image's root file system, the systemd unit and the Debian package, by the scripts in `tests/packaging`.
//! Root tests them all; another user tests the image, if it may create user namespaces.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

fn run_script(name: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packaging").join(name);
    let output = Command::new("python3").arg(script).args(["--gatepost", env!("CARGO_BIN_EXE_gatepost")]).output();
    let output = output.expect("python3 is missing (apt-get install python3)");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    print!("{}", String::from_utf8_lossy(&text));
}

#[test]
fn the_gateway_runs_from_the_image_as_another_user_with_a_read_only_root() {
    run_script("image.py");
}

#[test]
fn the_package_is_installed_upgraded_with_a_call_in_flight_and_removed() {
    run_script("package.py");
}

/// Runs `gatepost init --systemd` as `user`, with a program and in a folder that each user may use.
fn init_with_unit(folder: &Path, user: u32) -> Output {
    let program = folder.join("gatepost");
    fs::copy(env!("CARGO_BIN_EXE_gatepost"), &program).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(program);
    command.current_dir(folder).args(["init", "gateway", "--systemd", "--no-questions"]);
    if fs::metadata(folder).unwrap().uid() != user {
        command.uid(user);
    }
    command.output().unwrap()
}

#[test]
fn systemd_accepts_the_unit_that_init_writes_and_root_gets_none() {
    let folder = TempDir::new().unwrap();
    let own = fs::metadata(folder.path()).unwrap().uid();
    if own == 0 {
        let output = init_with_unit(folder.path(), 0);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains("install the package"), "{stderr}");
        assert!(!folder.path().join("gateway").exists(), "the refused command left a folder");
    }
    let output = init_with_unit(folder.path(), if own == 0 { 65534 } else { own });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let gateway = folder.path().join("gateway").canonicalize().unwrap();
    let unit = gateway.join("gatepost.service");
    // The unit belongs to the gateway's user, so that systemd gets a copy of it.
    let next = format!(
        "next: sudo install -m 644 {} /etc/systemd/system/ && sudo systemctl enable --now gatepost\n",
        unit.display()
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&next), "{stderr}");
    // The gateway can write to the folder that the configuration names, and to nothing else.
    let text = fs::read_to_string(&unit).unwrap();
    let writable: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("ReadWritePaths=")).collect();
    assert_eq!(writable, [gateway.join("gatepost.state").to_str().unwrap()]);
    assert_eq!(fs::metadata(writable[0]).unwrap().permissions().mode() & 0o7777, 0o700);
    let config = fs::read_to_string(gateway.join("gatepost.yaml")).unwrap();
    assert!(config.contains("last_known_good: gatepost.state #"), "{config}");
    let verified = Command::new("systemd-analyze").arg("verify").arg(unit).output();
    let verified = verified.expect("systemd-analyze is missing (apt-get install systemd)");
    let complaints = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !complaints.contains("gatepost.service"), "{complaints}");
}
