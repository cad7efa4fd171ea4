//! A rolling upgrade of two gateways under load.

use std::{path::Path, process::Command};

fn replace_two_gateways(close_delay: &str) -> (bool, String) {
    let loadtest = Path::new(env!("CARGO_BIN_EXE_gatepost-loadtest"));
    let gatepost = loadtest.with_file_name("gatepost");
    assert!(gatepost.exists(), "{} is missing (cargo build --workspace)", gatepost.display());
    let mut upgrade = Command::new(loadtest);
    upgrade.arg("upgrade").arg("--gatepost").arg(gatepost).args(["--callers", "8", "--close-delay", close_delay]);
    let output = upgrade.output().expect("the load test starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[test]
fn no_call_fails_while_two_gateways_are_replaced() {
    let (is_success, text) = replace_two_gateways("5s");
    assert!(is_success && text.contains(" calls while two gateways were replaced, 0 failed\n"), "{text}");
}

#[test]
fn without_the_delay_callers_that_do_not_know_of_the_end_fail() {
    let (is_success, text) = replace_two_gateways("0s");
    assert!(!is_success && text.contains("a call failed: "), "{text}");
}
