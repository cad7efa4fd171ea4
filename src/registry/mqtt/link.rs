//! The connection to a broker, made again whenever it ends: MQTT 5 first, 3.1.1 where that is not known (R104). It
//! keeps the only clocks of this feed, and tells the board what it hears.

use super::{
    board::Board,
    line::{Line, Opening, Refused, Word, v4, v5},
    settings::{Address, MqttSettings},
};
use crate::net::{self, Authorities, Wire};
use std::{pin::pin, time::Duration};
use tokio::time::Instant;

/// The shortest and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A connection that lasted so long was a good one: the next pause is the shortest again.
const LASTING: Duration = Duration::from_secs(10);

/// A broker and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) address: Address,
    pub(super) settings: MqttSettings,
    /// For each step of connecting.
    pub(super) timeout: Duration,
}

/// Keeps a connection to `broker`, for ever.
pub(super) async fn keep(broker: Broker, board: &Board) {
    let mut pause = PAUSE.0;
    loop {
        let began = Instant::now();
        let why = broker.converse(board).await;
        board.lost(format!("the broker at {}: {why}", broker.address.base()));
        if began.elapsed() >= LASTING {
            pause = PAUSE.0;
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Half of `pause` to one and a half of it: gateways that lost a broker together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    pause / 2 + pause.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

impl Broker {
    /// One connection from its beginning to its end; answers why it ended.
    async fn converse(&self, board: &Board) -> String {
        let mut line = match self.open().await {
            Ok(line) => line,
            Err(why) => return why,
        };
        board.begin();
        match self.within(subscribed(line.as_mut(), board)).await {
            Ok(()) => {}
            Err(why) => return why,
        }
        board.granted();
        tracing::info!(broker = %self.address.base(), "agents' statuses are read");
        let (settle, mut settled) = (Instant::now() + self.settings.settle.get(), false);
        loop {
            // A word that is being read is never dropped half read.
            let mut next = pin!(line.next());
            let word = loop {
                tokio::select! {
                    word = &mut next => break word,
                    () = tokio::time::sleep_until(settle), if !settled => {
                        settled = true;
                        board.settle();
                    }
                }
            };
            match word {
                Ok(word) => hear(board, word),
                Err(why) => return why,
            };
        }
    }

    async fn open(&self) -> Result<Box<dyn Line>, String> {
        let opening = self.opening().await?;
        match self.attempt(v5::open(self.wire().await?, &opening)).await {
            Ok(line) => Ok(line),
            Err(Refused::Other(why)) => Err(why),
            Err(Refused::Version(newer)) => {
                tracing::debug!(broker = %self.address.base(), why = newer, "MQTT 3.1.1 is tried instead of 5");
                let older = self.attempt(v4::open(self.wire().await?, &opening)).await;
                older.map_err(|(Refused::Version(why) | Refused::Other(why))| why)
            }
        }
    }

    /// Reads the secrets and makes up a client identifier of the 23 characters that every broker takes.
    async fn opening(&self) -> Result<Opening, String> {
        let (username, password) = (self.settings.username.clone(), self.settings.password.clone());
        let read = tokio::task::spawn_blocking(move || {
            let Some(name) = username else { return Ok(None) };
            let password = password.map(|password| password.load()).transpose()?;
            Ok::<_, String>(Some((name.load()?, password)))
        });
        let user = read.await.map_err(|_| "secrets could not be read".to_owned())??;
        let random = uuid::Uuid::new_v4().simple().to_string();
        Ok(Opening {
            id: random.chars().take(21).fold("gp".to_owned(), |id, next| id + next.encode_utf8(&mut [0; 4])),
            host: self.address.host.clone(),
            port: self.address.port,
            user,
            keep_alive: u16::try_from(self.settings.keep_alive.get().as_secs()).unwrap_or(u16::MAX),
        })
    }

    async fn wire(&self) -> Result<Box<dyn Wire>, String> {
        let authorities = match self.address.secure {
            true => {
                let ca = self.settings.ca.clone();
                let read = tokio::task::spawn_blocking(move || Authorities::load(ca.as_deref()));
                Some(read.await.map_err(|_| "certificate authorities could not be read".to_owned())??)
            }
            false => None,
        };
        self.within(net::connect(&self.address.host, self.address.port, authorities.as_ref())).await
    }

    async fn within<T>(&self, step: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let done = tokio::time::timeout(self.timeout, step).await;
        done.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn attempt(
        &self,
        open: impl Future<Output = Result<Box<dyn Line>, Refused>>,
    ) -> Result<Box<dyn Line>, Refused> {
        let opened = tokio::time::timeout(self.timeout, open).await;
        opened.unwrap_or_else(|_| Err(Refused::Version("no answer in time".to_owned())))
    }
}

/// Waits for the answer to the subscription: a queued one could be sent after what it should have heard.
async fn subscribed(line: &mut dyn Line, board: &Board) -> Result<(), String> {
    loop {
        match line.next().await? {
            Word::Granted => return Ok(()),
            word => hear(board, word),
        }
    }
}

fn hear(board: &Board, word: Word) {
    if let Word::Published { topic, payload, retained } = word {
        board.hear(&topic, &payload, retained);
    }
}
