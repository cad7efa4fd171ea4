//! The folder in which local runtimes place descriptors. A file is trusted only if no user but the owner can have
//! written it. Files are opened relative to the open folder, and links are not followed, so that the file that was
//! checked is the file that is read.

use crate::agent::AgentId;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, statat},
    process::geteuid,
};
use serde::Deserialize;
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// The maximum size of a descriptor, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 10;

/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The sticky bit, as on `/tmp`: users with write access cannot replace files of other users.
const STICKY_BIT: u32 = 0o1000;

/// The address of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuntimeAddress {
    pub(super) socket: PathBuf,
    pub(super) path: String,
}

/// A descriptor that a runtime places in the folder.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuntimeDescriptor {
    socket: Option<String>,
    path: Option<String>,
}

/// The folder in which runtimes place their descriptors, and its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuntimeFolder<'a> {
    pub(super) path: &'a Path,
    /// The user that owns the files; `None` is the user that runs the gateway.
    pub(super) owner_uid: Option<u32>,
}

impl RuntimeFolder<'_> {
    /// Returns why the folder cannot be used.
    pub(super) fn problem(&self) -> Option<String> {
        // A missing folder may be created later; until then its runtimes count as not running.
        if statat(CWD, self.path, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|error| error == rustix::io::Errno::NOENT) {
            return None;
        }
        self.open().err()
    }

    /// Reads the descriptor of the runtime called `name`. Blocks.
    pub(super) fn read_descriptor(&self, name: &AgentId) -> Result<RuntimeAddress, String> {
        let folder = self.open()?;
        let file = format!("{name}.json");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&folder, &file, flags, Mode::empty())
            .map_err(|error| format!("{file} cannot be opened ({error})"))?;
        let stat = fstat(&opened).map_err(|error| format!("{file} cannot be checked ({error})"))?;
        self.verify_ownership(&stat, FileType::RegularFile).map_err(|problem| format!("{file} {problem}"))?;
        let mut text = Vec::new();
        let read = File::from(opened).take(MAX_DESCRIPTOR_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| format!("{file} cannot be read ({error})"))?;
        if text.len() as u64 > MAX_DESCRIPTOR_BYTES {
            return Err(format!("{file} is too long (at most {MAX_DESCRIPTOR_BYTES} bytes)"));
        }
        let RuntimeDescriptor { socket, path } =
            serde_json::from_slice(&text).map_err(|error| format!("{file} is not a valid descriptor ({error})"))?;
        let socket = socket.unwrap_or_else(|| format!("{name}.sock"));
        if socket.is_empty() || socket.contains(['/', '\0']) || matches!(&*socket, "." | "..") {
            return Err(format!("{file}: socket is not a file name in this folder"));
        }
        let stat = statat(&folder, &socket, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| format!("{socket} is missing ({error})"))?;
        self.verify_ownership(&stat, FileType::Socket).map_err(|problem| format!("{socket} {problem}"))?;
        let path = validate_path(path).map_err(|problem| format!("{file}: {problem}"))?;
        Ok(RuntimeAddress { socket: self.path.join(socket), path })
    }

    /// Checks that the socket at `path` belongs to the owner, and that no other user can replace it. Blocks.
    pub(super) fn verify_socket(&self, path: &Path) -> Result<(), String> {
        let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| format!("it is missing ({error})"))?;
        self.verify_ownership(&stat, FileType::Socket).map_err(|problem| format!("it {problem}"))?;
        let parent = path.parent().unwrap_or(path);
        let stat = statat(CWD, parent, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| format!("its folder is missing ({error})"))?;
        let mode = stat.st_mode;
        let shared = mode & OTHERS_WRITE != 0 && mode & STICKY_BIT == 0;
        let is_folder = FileType::from_raw_mode(mode) == FileType::Directory;
        if !is_folder || shared || !self.is_trusted_owner(stat.st_uid, true) {
            return Err("other users may replace it (its folder must be writable by the owner only)".to_owned());
        }
        Ok(())
    }

    fn open(&self) -> Result<rustix::fd::OwnedFd, String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.display();
        let folder =
            open(self.path, flags, Mode::empty()).map_err(|error| format!("{path} cannot be opened ({error})"))?;
        let stat = fstat(&folder).map_err(|error| format!("{path} cannot be checked ({error})"))?;
        self.verify_ownership(&stat, FileType::Directory).map_err(|problem| format!("{path} {problem}"))?;
        Ok(folder)
    }

    fn verify_ownership(&self, stat: &Stat, kind: FileType) -> Result<(), String> {
        if FileType::from_raw_mode(stat.st_mode) != kind {
            return Err(format!(
                "is not a {}",
                if kind == FileType::Socket { "socket" } else { "plain file or folder" }
            ));
        }
        if !self.is_trusted_owner(stat.st_uid, kind == FileType::Directory) {
            return Err(format!("belongs to user {} (must be the owner of local runtimes)", stat.st_uid));
        }
        match stat.st_mode & OTHERS_WRITE {
            0 => Ok(()),
            _ => Err(format!("is writable by other users (mode {:o}, at most 755 is allowed)", stat.st_mode & 0o7777)),
        }
    }

    /// Whether `uid` may own the file. A folder may also belong to the gateway's user or root; its files may not.
    fn is_trusted_owner(&self, uid: u32, is_folder: bool) -> bool {
        let gateway = geteuid().as_raw();
        uid == self.owner_uid.unwrap_or(gateway) || (is_folder && (uid == gateway || uid == 0))
    }
}

/// Validates the HTTP path of a runtime.
pub(super) fn validate_path(path: Option<String>) -> Result<String, String> {
    let path = path.unwrap_or_else(|| "/".to_owned());
    let is_valid = path.starts_with('/') && path.len() <= 1024 && path.parse::<http::uri::PathAndQuery>().is_ok();
    if is_valid { Ok(path) } else { Err("'path' is not an HTTP path (it must begin with /)".to_owned()) }
}
