//! A TCP proxy that delays what the server sends, like a network with a long way.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    sync::mpsc::unbounded_channel,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

/// A proxy for one server. It ends when it is dropped.
pub struct DelayingProxy {
    pub address: SocketAddr,
    delay_millis: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl DelayingProxy {
    /// Starts a proxy without a delay.
    pub async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay_millis = Arc::<AtomicU64>::default();
        let delay = Arc::clone(&delay_millis);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
                let (sender, mut chunks) = unbounded_channel::<(Instant, Vec<u8>)>();
                let delay = Arc::clone(&delay);
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                        let due = Instant::now() + Duration::from_millis(delay.load(Relaxed));
                        if sender.send((due, buffer[..length].to_vec())).is_err() {
                            return;
                        }
                    }
                });
                tokio::spawn(async move {
                    while let Some((due, chunk)) = chunks.recv().await {
                        sleep_until(due).await;
                        if to_client.write_all(&chunk).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, delay_millis, task }
    }

    /// Delays what the server sends from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_millis.store(u64::try_from(delay.as_millis()).unwrap(), Relaxed);
    }
}

impl Drop for DelayingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
