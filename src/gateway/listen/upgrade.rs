//! Handing the listening sockets to a successor: the kernel's queue of connections goes with them, so nobody
//! is refused. The running process offers them on a unix socket of mode 0600 to its own user only; the
//! successor takes them, serves, and says that it is ready. Then, and only then, the first one leaves.

use rustix::net::{
    self as rx, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixStream as StdUnixStream},
    },
    path::Path,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, Interest},
    net::{UnixListener, UnixStream},
    time::timeout,
};

/// How long a successor may take from connecting to serving.
const TO_BE_READY: Duration = Duration::from_secs(120);

/// How long the running process may take to hand over.
const TO_HAND_OVER: Duration = Duration::from_secs(10);

/// Pause after an accept that failed, as for want of descriptors.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Sockets that fit one message; the kernel's own bound is 253.
const MOST: usize = 64;

const READY: &[u8] = b"ready\n";

/// Offers `sockets` at `path`; resolves when a successor serves them. `before` is done first for each one that
/// asks. One that dies before it is ready changes nothing: the offer goes on.
///
/// # Errors
/// The system's, when the socket cannot be made.
pub async fn offer(path: &Path, sockets: Vec<(String, OwnedFd)>, before: impl AsyncFn()) -> io::Result<()> {
    let listener = bind(path)?;
    loop {
        let successor = match listener.accept().await {
            Ok((successor, _)) => successor,
            Err(error) => {
                tracing::warn!(%error, "a successor could not be heard");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let handed = async {
            before().await;
            hand_over(successor, &sockets).await
        };
        match timeout(TO_BE_READY, handed).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => tracing::warn!(%error, "a successor did not take over"),
            Err(_) => tracing::warn!("a successor was not ready in time"),
        }
    }
}

/// Binds under another name and renames: `path` always leads to a socket that somebody accepts from, and
/// only once nobody else may open it.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

async fn hand_over(mut successor: UnixStream, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    if successor.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it runs as another user"));
    }
    successor.async_io(Interest::WRITABLE, || send(&successor, sockets)).await?;
    let mut word = [0; READY.len()];
    successor.read_exact(&mut word).await?;
    if word == READY {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "it did not say that it is ready"))
    }
}

/// One message: the labels, a line each, and an empty line; with them the sockets in the same order.
fn send(to: &UnixStream, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    if sockets.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there are too many listeners to hand over"));
    }
    let mut labels: String = sockets.iter().map(|(label, _)| format!("{label}\n")).collect();
    labels.push('\n');
    let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the listeners do not fit one message"));
    }
    let sent = rx::sendmsg(to, &[IoSlice::new(labels.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    if sent == labels.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sockets taken from the process before.
#[derive(Debug)]
pub struct Taken {
    listeners: Vec<(String, TcpListener)>,
    before: StdUnixStream,
}

/// Takes the sockets that are offered at `path`. Blocks for a moment: meant for before the runtime serves.
///
/// # Errors
/// Nobody offers there, it is another user's process, or what came is not an offer.
pub fn take(path: &Path) -> io::Result<Taken> {
    let mut before = StdUnixStream::connect(path)?;
    if rx::sockopt::socket_peercred(&before)?.uid != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the running process belongs to another user"));
    }
    before.set_read_timeout(Some(TO_HAND_OVER))?;
    let mut text = vec![0; 16 << 10];
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rx::recvmsg(&before, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sockets.extend(descriptors);
        }
    }
    text.truncate(received.bytes);
    while text != b"\n" && !text.ends_with(b"\n\n") {
        let mut more = [0; 1 << 10];
        let read = before.read(&mut more)?;
        text.extend_from_slice(more.get(..read).filter(|more| !more.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?);
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the running process did not offer its sockets");
    let labels = String::from_utf8(text).map_err(|_| invalid())?;
    let labels: Vec<_> = labels.lines().filter(|label| !label.is_empty()).map(str::to_owned).collect();
    if labels.len() != sockets.len() {
        return Err(invalid());
    }
    Ok(Taken { listeners: labels.into_iter().zip(sockets.into_iter().map(TcpListener::from)).collect(), before })
}

impl Taken {
    /// The socket that was configured as `label`; each can be had once.
    pub fn listener(&mut self, label: &str) -> Option<TcpListener> {
        let at = self.listeners.iter().position(|(known, _)| known == label)?;
        Some(self.listeners.remove(at).1)
    }

    /// Tells the process before that this one serves. Sockets that nobody asked for are closed.
    ///
    /// # Errors
    /// The process before is gone, which changes nothing for this one.
    pub fn ready(mut self) -> io::Result<()> {
        self.before.write_all(READY)
    }
}
