//! The private folder: what stands in it is believed only where nobody but the owner could have put it there. Files are
//! opened one below the other and never through links, so that what was looked at is what is read.

use super::LocalConfig;
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

/// The longest descriptor.
const LONGEST: u64 = 64 << 10;

/// Bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// `/tmp`'s bit: whoever may write there may not replace what is another's.
const STICKY: u32 = 0o1000;

/// Where a runtime is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) socket: PathBuf,
    pub(super) path: String,
}

/// What a runtime places in the folder.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    socket: Option<String>,
    path: Option<String>,
}

/// What keeps the folder from being used.
pub(super) fn problem(config: &LocalConfig) -> Option<String> {
    // One that is not there yet may still be made; calls are answered that nobody runs.
    if statat(CWD, &*config.folder, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|why| why == rustix::io::Errno::NOENT) {
        return None;
    }
    opened(config).err()
}

/// Where the runtime called `name` is. Blocks.
pub(super) fn find(config: &LocalConfig, name: &AgentId) -> Result<Place, String> {
    let folder = opened(config)?;
    let file = format!("{name}.json");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened =
        openat(&folder, &file, flags, Mode::empty()).map_err(|why| format!("{file} cannot be opened ({why})"))?;
    let stat = fstat(&opened).map_err(|why| format!("{file} cannot be looked at ({why})"))?;
    believed(&stat, FileType::RegularFile, config).map_err(|why| format!("{file} {why}"))?;
    let mut text = Vec::new();
    let read = File::from(opened).take(LONGEST + 1).read_to_end(&mut text);
    read.map_err(|why| format!("{file} cannot be read ({why})"))?;
    if text.len() as u64 > LONGEST {
        return Err(format!("{file} is longer than {LONGEST} bytes"));
    }
    let Descriptor { socket, path } =
        serde_json::from_slice(&text).map_err(|why| format!("{file} is no descriptor ({why})"))?;
    let socket = socket.unwrap_or_else(|| format!("{name}.sock"));
    if socket.is_empty() || socket.contains(['/', '\0']) || matches!(&*socket, "." | "..") {
        return Err(format!("{file}: socket is no file of this folder"));
    }
    let stat =
        statat(&folder, &socket, AtFlags::SYMLINK_NOFOLLOW).map_err(|why| format!("{socket} is missing ({why})"))?;
    believed(&stat, FileType::Socket, config).map_err(|why| format!("{socket} {why}"))?;
    let path = checked(path).map_err(|why| format!("{file}: {why}"))?;
    Ok(Place { socket: config.folder.join(socket), path })
}

/// Whether the socket at `path` is the owner's, and stands where nobody else could replace it. Blocks.
pub(super) fn vet(path: &Path, config: &LocalConfig) -> Result<(), String> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|why| format!("it is missing ({why})"))?;
    believed(&stat, FileType::Socket, config).map_err(|why| format!("it {why}"))?;
    let parent = path.parent().unwrap_or(path);
    let stat =
        statat(CWD, parent, AtFlags::SYMLINK_NOFOLLOW).map_err(|why| format!("its folder is missing ({why})"))?;
    let mode = stat.st_mode;
    let shared = mode & OTHERS_WRITE != 0 && mode & STICKY == 0;
    match FileType::from_raw_mode(mode) == FileType::Directory && !shared && owns(stat.st_uid, config, true) {
        true => Ok(()),
        false => Err("others may replace it (its folder is not the owner's alone)".to_owned()),
    }
}

/// The HTTP path of a runtime.
pub(super) fn checked(path: Option<String>) -> Result<String, String> {
    let path = path.unwrap_or_else(|| "/".to_owned());
    let fits = path.starts_with('/') && path.len() <= 1024 && path.parse::<http::uri::PathAndQuery>().is_ok();
    if fits { Ok(path) } else { Err("path is no HTTP path (it begins with /)".to_owned()) }
}

fn opened(config: &LocalConfig) -> Result<rustix::fd::OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let named = config.folder.display();
    let folder =
        open(&*config.folder, flags, Mode::empty()).map_err(|why| format!("{named} cannot be opened ({why})"))?;
    let stat = fstat(&folder).map_err(|why| format!("{named} cannot be looked at ({why})"))?;
    believed(&stat, FileType::Directory, config).map_err(|why| format!("{named} {why}"))?;
    Ok(folder)
}

fn believed(stat: &Stat, kind: FileType, config: &LocalConfig) -> Result<(), String> {
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(format!("is no {}", if kind == FileType::Socket { "socket" } else { "plain file or folder" }));
    }
    if !owns(stat.st_uid, config, kind == FileType::Directory) {
        return Err(format!("belongs to user {} (and not to the owner of local runtimes)", stat.st_uid));
    }
    match stat.st_mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(format!("may be written to by others (mode {:o}, wanted is at most 755)", stat.st_mode & 0o7777)),
    }
}

/// A folder may also be the gateway's own or the system's; what stands in it is the owner's.
fn owns(uid: u32, config: &LocalConfig, is_folder: bool) -> bool {
    let gateway = geteuid().as_raw();
    uid == config.owner.unwrap_or(gateway) || (is_folder && (uid == gateway || uid == 0))
}
