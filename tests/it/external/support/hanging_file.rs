//! A file that does not answer, as one of a network mount whose server is gone: a FIFO that nothing writes to.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// The FIFO in the place of a file, until it is dropped: then reads of it end with the text of the file.
pub struct HangingFile {
    path: PathBuf,
    text: String,
}

impl HangingFile {
    /// Replaces the file.
    pub fn replace(path: &Path) -> Self {
        let (text, fifo) = (fs::read_to_string(path).unwrap(), path.with_extension("fifo"));
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::rename(&fifo, path).unwrap();
        Self { path: path.to_owned(), text }
    }
}

impl Drop for HangingFile {
    fn drop(&mut self) {
        // Without a reader, opening fails instead of waiting for one.
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
        if let Ok(mut fifo) = fs::OpenOptions::new().write(true).custom_flags(flags).open(&self.path) {
            let _ = fifo.write_all(self.text.as_bytes());
        }
        let file = self.path.with_extension("new");
        if fs::write(&file, &self.text).is_ok() {
            let _ = fs::rename(&file, &self.path);
        }
    }
}
