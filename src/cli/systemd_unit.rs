//! The systemd unit that `gatepost init` writes. The gateway must not be able to change the unit, the configuration and the
//! keys: root installs a copy of the unit, and the gateway can write to the state folder only.

use anyhow::{Context as _, anyhow};
use rustix::process::Uid;
use std::path::Path;

/// The unit of the package, whose hardening the written unit has too.
const PACKAGED_UNIT: &str = include_str!("../../config/systemd/gatepost.service");

/// The file with the unit, which root copies to the folder of systemd.
pub(super) const UNIT_FILE: &str = "gatepost.service";

/// The folder beside the configuration to which the gateway may write.
pub(super) const STATE_FOLDER: &str = "gatepost.state";

/// Settings of the packaged unit that belong to its user and its folders. `RemoveIPC=` would remove the shared memory of
/// the user's other programs.
const PACKAGED_SETTINGS: [&str; 13] = [
    "Documentation=",
    "ExecStart=",
    "ExecReload=",
    "Environment=GATEPOST__",
    "EnvironmentFile=",
    "User=",
    "Group=",
    "WorkingDirectory=",
    "StateDirectory=",
    "StateDirectoryMode=",
    "RuntimeDirectory=",
    "RuntimeDirectoryMode=",
    "RemoveIPC=",
];

/// Settings of the packaged unit that hide folders, in which the program and the configuration may be, and what replaces
/// them then. The sockets in `/run/user` stay hidden, because a program with access to the service manager of its user can
/// start others there, without the hardening.
const HIDING_SETTINGS: [(&str, &[&str], &str); 3] = [
    ("ProtectHome=yes", &["/run/user/"], "ProtectHome=read-only\n"),
    ("ProtectHome=yes", &["/home/", "/root/"], "ProtectHome=read-only\nInaccessiblePaths=-/run/user\n"),
    ("PrivateTmp=yes", &["/tmp/", "/var/tmp/"], ""),
];

/// Returns the unit that runs `program` with the configuration in `folder` as `user`: the packaged unit with another user
/// and other folders.
pub(super) fn unit_text(program: &Path, folder: &Path, user: Uid) -> anyhow::Result<String> {
    if user.is_root() {
        let advice = "run this command as the user that the gateway runs as, or install the package";
        return Err(anyhow!("no unit for a gateway that runs as root is written: {advice}"));
    }
    let (program, folder, user) = (unit_path(program)?, unit_path(folder)?, user.as_raw());
    let own = format!(
        "ExecStart={program} run --config {folder}/gatepost.yaml\nUser={user}\nWorkingDirectory={folder}\n\
         # With ProtectSystem=strict the gateway can write here only, not to its configuration and keys.\n\
         ReadWritePaths={folder}/{STATE_FOLDER}\n"
    );
    let is_own_part =
        |line: &&str| !line.starts_with('#') && !PACKAGED_SETTINGS.iter().any(|name| line.starts_with(name));
    let mut text = String::new();
    for line in PACKAGED_UNIT.lines().filter(is_own_part) {
        let hides = |hidden: &&str| program.starts_with(hidden) || format!("{folder}/").starts_with(hidden);
        match HIDING_SETTINGS.iter().find(|(setting, hidden, _)| *setting == line && hidden.iter().any(hides)) {
            Some((_, _, instead)) => text.push_str(instead),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
        if line == "[Service]" {
            text.push_str(&own);
        }
    }
    Ok(text)
}

/// Returns a path as a unit may contain it.
fn unit_path(path: &Path) -> anyhow::Result<&str> {
    let is_plain = |text: &&str| !text.contains(|c: char| c.is_whitespace() || c.is_control() || "%\\\"'$".contains(c));
    let text = path.to_str().filter(is_plain);
    text.with_context(|| format!("{} cannot be in a unit (use a path without spaces and quotes)", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_has_the_hardening_of_the_package_and_its_own_user_and_folders() {
        let user = Uid::from_raw(1000);
        let unit_of = |program: &str, folder: &str| unit_text(Path::new(program), Path::new(folder), user);
        let unit = unit_of("/opt/gatepost", "/srv/gate").unwrap();
        for line in [
            "User=1000",
            "WorkingDirectory=/srv/gate",
            "ReadWritePaths=/srv/gate/gatepost.state",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "Type=notify",
            "Environment=MIMALLOC_ALLOW_THP=0",
        ] {
            assert!(unit.lines().any(|own| own == line), "{line}: {unit}");
        }
        assert!(!unit.contains("/etc/gatepost") && !unit.contains("/usr/libexec"), "{unit}");
        assert_eq!(unit.matches("ReadWritePaths=").count(), 1, "{unit}");
        let in_home = unit_of("/home/a/gatepost", "/tmp").unwrap();
        assert!(in_home.contains("ProtectHome=read-only\nInaccessiblePaths=-/run/user\n"), "{in_home}");
        assert!(!in_home.contains("PrivateTmp"), "{in_home}");
        let in_run = unit_of("/opt/gatepost", "/run/user/1000/gate").unwrap();
        assert!(in_run.contains("ProtectHome=read-only\n") && !in_run.contains("InaccessiblePaths"), "{in_run}");
        assert!(!unit.contains("RemoveIPC"), "it would remove shared memory of the user's other programs: {unit}");
        let packaged = |name: &str| PACKAGED_UNIT.lines().any(|line| line.starts_with(name));
        for name in PACKAGED_SETTINGS.into_iter().chain(HIDING_SETTINGS.map(|(setting, ..)| setting)) {
            assert!(packaged(name), "{name} is not in the packaged unit");
        }
        for folder in ["/srv/my gate", "/srv/%h", "/srv/\"gate"] {
            assert!(unit_of("/opt/gatepost", folder).is_err(), "{folder}");
        }
        let as_root = unit_text(Path::new("/opt/gatepost"), Path::new("/srv/gate"), Uid::ROOT).unwrap_err();
        assert!(as_root.to_string().contains("install the package"), "{as_root}");
    }
}
