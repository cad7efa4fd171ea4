//! Listener handover: passes the listening sockets to a successor process. The kernel's accept queues go with them, so
//! no connection is refused. The running process offers the sockets on a unix socket with mode 0600, to its own user
//! only; the successor takes them, serves, and signals that it is ready. Only then does the running process drain.

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

/// Maximum time for a successor to become ready, from its connection to the handover socket.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time for the running process to send its sockets.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum sockets in one message; the kernel's own limit is 253.
const MAX_SOCKETS: usize = 64;

const READY_MESSAGE: &[u8] = b"ready\n";

/// Offers `sockets` at `path`; resolves when a successor serves them, with its process id. Runs `prepare` for each
/// successor that connects. If a successor ends before it is ready, the offer continues.
///
/// # Errors
/// The system's error, when the handover socket cannot be created.
pub async fn offer_listeners(path: &Path, sockets: Vec<(String, OwnedFd)>, prepare: impl AsyncFn()) -> io::Result<i32> {
    let listener = bind_handover_socket(path)?;
    loop {
        let successor = match listener.accept().await {
            Ok((successor, _)) => successor,
            Err(error) => {
                tracing::warn!(%error, "listener handover: accepting a successor failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let handover = async {
            prepare().await;
            hand_over_to(successor, &sockets).await
        };
        match timeout(READY_TIMEOUT, handover).await {
            Ok(Ok(successor)) => return Ok(successor),
            Ok(Err(error)) => tracing::warn!(%error, "listener handover failed"),
            Err(_) => tracing::warn!("listener handover failed: the successor was not ready in time"),
        }
    }
}

/// Binds under a temporary name, sets the mode, then renames: the socket at `path` always accepts connections and
/// always has mode 0600.
fn bind_handover_socket(path: &Path) -> io::Result<UnixListener> {
    let mut temporary_path = path.as_os_str().to_owned();
    temporary_path.push(format!(".{}", std::process::id()));
    match std::fs::remove_file(&temporary_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary_path)?;
    std::fs::set_permissions(&temporary_path, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&temporary_path, path)?;
    Ok(listener)
}

async fn hand_over_to(mut successor: UnixStream, sockets: &[(String, OwnedFd)]) -> io::Result<i32> {
    let credentials = successor.peer_cred()?;
    if credentials.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the successor runs as another user"));
    }
    successor.async_io(Interest::WRITABLE, || send_sockets(&successor, sockets)).await?;
    let mut message = [0; READY_MESSAGE.len()];
    successor.read_exact(&mut message).await?;
    if message == READY_MESSAGE {
        credentials.pid().ok_or_else(|| io::Error::other("the system does not know the successor's process id"))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the successor sent an invalid ready message"))
    }
}

/// Sends one message: the labels, one per line, then an empty line; with them the sockets in the same order.
fn send_sockets(to: &UnixStream, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    if sockets.len() > MAX_SOCKETS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many listeners to hand over"));
    }
    let mut labels: String = sockets.iter().map(|(label, _)| format!("{label}\n")).collect();
    labels.push('\n');
    let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the listeners do not fit into one message"));
    }
    let sent = rx::sendmsg(to, &[IoSlice::new(labels.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    if sent == labels.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Listening sockets taken over from the predecessor process.
#[derive(Debug)]
pub struct InheritedListeners {
    listeners: Vec<(String, TcpListener)>,
    predecessor: StdUnixStream,
}

/// Takes over the sockets that are offered at `path`. Blocks briefly; meant to be called before the runtime serves.
///
/// # Errors
/// No process offers sockets there, it belongs to another user, or its message is invalid.
pub fn take_over_listeners(path: &Path) -> io::Result<InheritedListeners> {
    let mut predecessor = StdUnixStream::connect(path)?;
    if rx::sockopt::socket_peercred(&predecessor)?.uid != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the running process belongs to another user"));
    }
    predecessor.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
    let mut message = vec![0; 16 << 10];
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rx::recvmsg(&predecessor, &mut [IoSliceMut::new(&mut message)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for control_message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = control_message {
            sockets.extend(descriptors);
        }
    }
    message.truncate(received.bytes);
    while message != b"\n" && !message.ends_with(b"\n\n") {
        let mut more = [0; 1 << 10];
        let read = predecessor.read(&mut more)?;
        message
            .extend_from_slice(more.get(..read).filter(|more| !more.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?);
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the running process sent an invalid handover message");
    let labels = String::from_utf8(message).map_err(|_| invalid())?;
    let labels: Vec<_> = labels.lines().filter(|label| !label.is_empty()).map(str::to_owned).collect();
    if labels.len() != sockets.len() {
        return Err(invalid());
    }
    Ok(InheritedListeners {
        listeners: labels.into_iter().zip(sockets.into_iter().map(TcpListener::from)).collect(),
        predecessor,
    })
}

impl InheritedListeners {
    /// Removes and returns the socket that was configured as `label`.
    pub fn take_listener(&mut self, label: &str) -> Option<TcpListener> {
        let at = self.listeners.iter().position(|(offered, _)| offered == label)?;
        Some(self.listeners.remove(at).1)
    }

    /// Tells the predecessor that this process serves. Closes the sockets that were not taken.
    ///
    /// # Errors
    /// The predecessor has ended, which does not affect this process.
    pub fn signal_ready(mut self) -> io::Result<()> {
        self.predecessor.write_all(READY_MESSAGE)
    }
}
