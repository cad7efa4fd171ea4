//! Notifications to the service manager: the protocol of systemd (`sd_notify(3)`), a datagram with assignments to the
//! unix socket that the environment names. Without that variable nothing is sent.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

/// The service manager that started the process. The default is none: nothing is sent.
#[derive(Clone, Debug, Default)]
pub struct ServiceManager {
    socket: Option<Arc<NotifySocket>>,
    /// How long the service manager waits for a sign of life before it kills the process.
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// Reads the environment. A process that takes over is watched in place of the one whose id the environment has.
    pub(super) fn from_environment(take_over: bool) -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_watched = take_over || number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_watched && *usec > 0).map(Duration::from_micros);
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let opened = NotifySocket::open(&name);
            opened.map_err(|why| tracing::warn!("service manager cannot be notified: {why} (NOTIFY_SOCKET)")).ok()
        });
        Self { socket: socket.map(Arc::new), watchdog }
    }

    /// Reports that the process serves. As the main process of the service, if it took over from another one.
    pub(super) fn notify_ready(&self) {
        self.send(&format!("READY=1\nMAINPID={}\nSTATUS=Serving", std::process::id()));
    }

    /// Reports that a reload begins; [`ServiceManager::notify_reloaded`] ends it.
    pub(super) fn notify_reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// Reports that a reload has ended, and how.
    pub(super) fn notify_reloaded(&self, succeeded: bool) {
        let status = if succeeded { "Serving" } else { "Serving with the previous configuration: reload failed" };
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the process stops, and how long that may take.
    pub(super) fn notify_stopping(&self, max_duration: Duration) {
        let usec = max_duration.as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={usec}\nSTATUS=Draining"));
    }

    /// Reports that the process `pid` has taken over: it is the main process of the service from now on.
    pub(super) fn notify_successor(&self, pid: i32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Sends signs of life while the runtime has time for them, if the service manager expects them.
    pub(super) fn start_watchdog(&self) {
        let Some(interval) = self.watchdog else { return };
        let manager = self.clone();
        tokio::spawn(async move {
            let mut tick = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                manager.send("WATCHDOG=1");
            }
        });
    }

    fn send(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(why) = socket.socket.send_to_addr(state.as_bytes(), &socket.address) {
            tracing::warn!("service manager was not notified: {why} (NOTIFY_SOCKET)");
        }
    }
}

impl NotifySocket {
    /// Opens the socket at a path, or in the abstract namespace if the name begins with `@`.
    fn open(name: &OsString) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(Path::new(name))?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the name is neither a path nor begins with @",
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not stop the gateway.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }
}
