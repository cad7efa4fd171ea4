//! A key file that a command has locked. The folder is opened once and the file is found in it by its name, so that the
//! file that is replaced is the one that was locked, also if a user changes the path meanwhile. Symbolic links that were
//! there before are followed, except by commands that add a key.

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use std::{
    ffi::{OsStr, OsString},
    fs::{File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

/// A key file that is locked until this value is dropped.
pub(super) struct LockedKeyFile {
    pub(super) file: File,
    folder: File,
    name: OsString,
}

impl LockedKeyFile {
    /// Opens a file at whose end lines are added; a new one is readable by its owner only.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open_to_append(path: &Path) -> io::Result<Self> {
        // A link may lead a command of an administrator to the file of another user.
        if path.is_symlink() {
            return Err(io::Error::other("it is a symbolic link (name the file itself)"));
        }
        let opened = Self::open(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        let mode = opened.file.metadata()?.mode();
        // Rights of a group may be meant for the gateway; with those of others, the file was created carelessly.
        if mode & 0o007 != 0 {
            opened.file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(opened)
    }

    /// Opens a file that is replaced.
    ///
    /// # Errors
    /// The file cannot be opened, or does not exist.
    pub(super) fn open_to_replace(path: &Path) -> io::Result<Self> {
        Self::open(path, OFlags::RDWR)
    }

    /// Opens a file and locks it for this command. A file that another command replaced meanwhile is opened again.
    fn open(path: &Path, flags: OFlags) -> io::Result<Self> {
        let path = resolve(path)?;
        let no_file = || io::Error::from(io::ErrorKind::IsADirectory);
        let (folder, name) = (path.parent().ok_or_else(no_file)?, path.file_name().ok_or_else(no_file)?);
        let folder_flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let folder = OpenOptions::new().read(true).custom_flags(folder_flags).open(folder)?;
        loop {
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?);
            file.lock()?;
            let locked = file.metadata()?;
            let current = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
            if current.is_ok_and(|current| (current.st_dev, current.st_ino) == (locked.dev(), locked.ino())) {
                return Ok(Self { file, folder, name: name.to_owned() });
            }
        }
    }

    /// Replaces the file atomically. The owner and the permissions stay, because the gateway may run as another user;
    /// others never get rights.
    ///
    /// # Errors
    /// The new file cannot be written; the previous one is unchanged then.
    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        let mut temporary = self.name.clone();
        temporary.push(".editing");
        // A command that was killed may have left its file; the lock shows that none is at work.
        match unlinkat(&self.folder, &temporary, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(why) => return Err(why.into()),
        }
        let replaced = self.write_copy(&temporary, text).and_then(|()| {
            renameat(&self.folder, &temporary, &self.folder, &self.name)?;
            self.folder.sync_all()
        });
        replaced.inspect_err(|_| {
            let _ = unlinkat(&self.folder, &temporary, AtFlags::empty());
        })
    }

    fn write_copy(&self, name: &OsStr, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut copy = File::from(openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        copy.write_all(text.as_bytes())?;
        let (metadata, own) = (self.file.metadata()?, copy.metadata()?);
        if (metadata.uid(), metadata.gid()) != (own.uid(), own.gid()) {
            fchown(&copy, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        copy.set_permissions(Permissions::from_mode(metadata.mode() & 0o770))?;
        copy.sync_all()
    }
}

/// Returns the path without symbolic links; the file itself may be absent.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.file_name()) {
        (Err(why), Some(name)) if why.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        (resolved, _) => resolved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn r28_a_path_that_changes_after_the_lock_leads_to_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, other) = (folder.path().join("keys"), folder.path().join("other"));
        for (path, text) in [(&keys, "old"), (&other, "foreign")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("keys.jsonl"), text).unwrap();
        }
        let locked = LockedKeyFile::open_to_replace(&keys.join("keys.jsonl")).unwrap();
        // A user who may write to the folder above makes the path lead elsewhere.
        fs::rename(&keys, folder.path().join("moved")).unwrap();
        symlink(&other, &keys).unwrap();
        locked.replace("new").unwrap();
        assert_eq!(fs::read_to_string(other.join("keys.jsonl")).unwrap(), "foreign");
        assert_eq!(fs::read_to_string(folder.path().join("moved/keys.jsonl")).unwrap(), "new");
    }

    #[test]
    fn r28_a_symbolic_link_leads_to_its_file_and_an_absent_target_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("absent", path("broken")).unwrap();
        assert!(LockedKeyFile::open_to_append(&path("broken")).is_err());
        assert!(LockedKeyFile::open_to_replace(&path("absent")).is_err());
        assert!(LockedKeyFile::open_to_append(folder.path()).is_err());
        LockedKeyFile::open_to_append(&path("new")).unwrap().file.write_all(b"text").unwrap();
        assert_eq!(fs::metadata(path("new")).unwrap().mode() & 0o777, 0o600);
        symlink("new", path("link")).unwrap();
        LockedKeyFile::open_to_replace(&path("link")).unwrap().replace("more").unwrap();
        assert!(path("link").is_symlink());
        assert_eq!(fs::read_to_string(path("new")).unwrap(), "more");
    }
}
