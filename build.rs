//! Passes the version of the compiler to the program, which the metric `gatepost_build_info` reports.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // The second word of `rustc 1.95.0 (59807616e 2026-04-14)`.
    let version = version.split_whitespace().nth(1).unwrap_or("unknown");
    println!("cargo:rustc-env=GATEPOST_RUST_VERSION={version}");
}
