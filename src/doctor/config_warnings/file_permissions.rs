//! Warnings about files that other users of this machine may read or write.

use super::{config_walk::ConfigWalk, config_warning::UnlocatedWarning};
use crate::{config::GatewayConfig, doctor::finding_codes::FindingCode, registry::SourceConfig};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Mode bits of users that are neither the owner nor in the group.
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_ENTER: u32 = 0o001;
/// In a folder with this bit, only the owner of a file may replace the file.
const STICKY: u32 = 0o1000;

pub(super) fn file_permission_warnings(
    config: &GatewayConfig,
    walk: &ConfigWalk,
    config_file: &Path,
) -> Vec<UnlocatedWarning> {
    let mut warnings = Vec::new();
    for (path, file) in walk.secrets.iter().chain(&walk.keys) {
        if is_open_to_others(file, OTHERS_READ) {
            warnings.push(UnlocatedWarning::new(
                FindingCode::SecretReadable,
                format!(
                    "{path}: every user of this machine can read {} (chmod o-r {})",
                    file.display(),
                    file.display()
                ),
            ));
        }
    }
    for (path, file) in decisive_files(config, walk, config_file) {
        if is_open_to_others(&file, OTHERS_WRITE) {
            // The configuration file itself has no path.
            let path = if path.is_empty() { path } else { format!("{path}: ") };
            warnings.push(UnlocatedWarning::new(FindingCode::FileWritable, format!(
                "{path}every user of this machine can change {}, and with it what the gateway does (chmod o-w {} and its \
                 folder)",
                file.display(),
                file.display()
            )));
        }
    }
    warnings
}

/// Returns the files that decide who may call what: a user that can write them is an operator.
fn decisive_files(config: &GatewayConfig, walk: &ConfigWalk, config_file: &Path) -> Vec<(String, PathBuf)> {
    let mut files = vec![(String::new(), config_file.to_owned())];
    let key_files = config.auth.api_keys.iter().flat_map(|keys| keys.files.iter().enumerate());
    files.extend(key_files.map(|(at, file)| (format!("auth.api_keys.files[{at}]"), file.to_path_buf())));
    for (at, source) in config.agents.sources.iter().enumerate() {
        if let SourceConfig::Files(path) = source {
            files.push((format!("agents.sources[{at}]"), path.to_path_buf()));
        }
    }
    for (at, listener) in config.listeners.iter().enumerate() {
        let client_ca = listener.tls.as_ref().and_then(|tls| tls.client_ca.as_ref());
        files.extend(client_ca.map(|file| (format!("listeners[{at}].tls.client_ca"), file.to_path_buf())));
    }
    files.extend(walk.secrets.iter().chain(&walk.keys).chain(&walk.certificates).cloned());
    files
}

/// Returns whether others have this right to the file, and may enter every folder above it. For a write, also whether
/// they may replace the file in its folder.
fn is_open_to_others(file: &Path, right: u32) -> bool {
    // A link's target counts: what others may do with the link says nothing.
    let Ok(file) = fs::canonicalize(file) else { return false };
    let mode = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    let is_reachable = file.ancestors().skip(1).all(|folder| mode(folder) & OTHERS_ENTER != 0);
    let is_replaceable = || {
        let folder = file.parent().map_or(0, mode);
        right == OTHERS_WRITE && folder & OTHERS_WRITE != 0 && folder & STICKY == 0
    };
    is_reachable && (mode(&file) & right != 0 || is_replaceable())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn others_may_read_a_file_only_if_they_may_enter_its_folders() {
        let root = tempfile::tempdir().unwrap();
        let (folder, file) = (root.path().join("open"), root.path().join("open/key"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "secret").unwrap();
        set_mode(&file, 0o644);
        set_mode(&folder, 0o755);
        set_mode(root.path(), 0o700);
        assert!(!is_open_to_others(&file, OTHERS_READ), "the folder above is closed");
        set_mode(root.path(), 0o755);
        assert!(is_open_to_others(&file, OTHERS_READ) && !is_open_to_others(&file, OTHERS_WRITE));
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_open_to_others(&link, OTHERS_READ));
        set_mode(&file, 0o640);
        assert!(!is_open_to_others(&file, OTHERS_READ) && !is_open_to_others(&link, OTHERS_READ));
        assert!(!is_open_to_others(&root.path().join("missing"), OTHERS_READ));
    }

    #[test]
    fn others_may_change_a_file_in_a_folder_that_they_may_write() {
        let root = tempfile::tempdir().unwrap();
        set_mode(root.path(), 0o777);
        let file = root.path().join("keys");
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o600);
        assert!(is_open_to_others(&file, OTHERS_WRITE), "others may replace the file");
        set_mode(root.path(), 0o1777);
        assert!(!is_open_to_others(&file, OTHERS_WRITE), "only its owner may");
        set_mode(&file, 0o602);
        assert!(is_open_to_others(&file, OTHERS_WRITE));
    }
}
