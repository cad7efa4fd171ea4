//! The audit log on a disk that is full.

use crate::audit::run;
use std::process::Command;

#[test]
fn r8_a_full_disk_leaves_no_half_line() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        "listeners: [{address: '127.0.0.1:0'}]\nauth: {api_keys: {files: [keys.jsonl]}}\naudit: {file: audit.log}\n";
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let log = folder.path().join("audit.log");
    let mut size = 0;
    // Until less than a line is left of a block of 1,024 bytes.
    for at in 0.. {
        run(folder.path(), &["key", "new", "--caller", &format!("caller-{at}")]);
        size = std::fs::metadata(&log).unwrap().len();
        if at > 0 && 1_024 - size % 1_024 < 300 {
            break;
        }
    }
    // Files may have so many blocks, and a write beyond fails in the middle, as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", size.div_ceil(1_024));
    let output = Command::new("bash")
        .current_dir(folder.path())
        .args(["-c", &script, env!("CARGO_BIN_EXE_gatepost"), "key", "disable", "--caller", "caller-0"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("audit log could not be written"), "{stderr}");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), size, "the half line is gone");
    run(folder.path(), &["audit", "verify"]);
    run(folder.path(), &["key", "disable", "--caller", "caller-1"]);
    run(folder.path(), &["audit", "verify"]);
}
