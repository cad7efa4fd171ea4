//! The container image's root file system, the systemd unit and the Debian package, by the scripts in `tests/packaging`.
//! Root tests them all; another user tests the image, if it may create user namespaces.

use std::{path::Path, process::Command};

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
