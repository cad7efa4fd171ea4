//! Reads files that may not answer, such as those of a network mount that hangs, without stopping a worker of the runtime.

use std::time::Duration;
use tokio::{
    sync::Mutex,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

/// Deadline of a read. A heartbeat that connects waits for it.
const READ_TIMEOUT: Duration = Duration::from_millis(250);

/// Reads one thing again and again. At most one read is outstanding: a thread that hangs cannot be ended.
#[derive(Debug)]
pub(super) struct BackgroundReader<T>(Mutex<Option<JoinHandle<Result<T, String>>>>);

impl<T: Send + 'static> BackgroundReader<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns what `read` returns; if a read is outstanding, what that one returns.
    ///
    /// # Errors
    /// The error of the read, or it did not end in time.
    pub(super) async fn read(&self, read: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
        let mut outstanding = self.0.lock().await;
        let task = outstanding.get_or_insert_with(|| spawn_blocking(read));
        let Ok(result) = timeout(READ_TIMEOUT, task).await else {
            return Err("a file of the shared state's secrets or authorities does not answer".to_owned());
        };
        *outstanding = None;
        result.unwrap_or_else(|why| Err(why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn a_read_that_hangs_is_given_up_and_not_repeated() {
        let (reader, (release, released)) = (BackgroundReader::new(), channel::<()>());
        let hanging = reader.read(move || released.recv().map(|()| 1).map_err(|why| why.to_string()));
        assert!(hanging.await.unwrap_err().contains("does not answer"));
        assert!(reader.read(|| unreachable!("a read is outstanding")).await.is_err());
        release.send(()).unwrap();
        assert_eq!(reader.read(|| Ok(2)).await, Ok(1), "what the outstanding read returns");
        assert_eq!(reader.read(|| Ok(2)).await, Ok(2));
    }
}
