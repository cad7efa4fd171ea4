//! Records of idempotency keys in the shared state: what an engine does with them, each request in one atomic step.
//!
//! A record is in progress until its claim is completed or released. A claim has a lease that its gateway extends; after
//! a lost lease the outcome is unknown, and the record stays until its lifetime has passed.
//!
//! The records of a client are in one shard. A shard has an epoch, which is made with its first record and is lost with
//! its data, and remembers the highest number of a request that it confirmed to each gateway. Gateways repeat both with
//! their requests, so that the server finds out that it has lost data: all of it, or its last changes.

use super::state_error::StateError;
use bytes::Bytes;
use std::time::Duration;

/// What a gateway knows of a shard when it sends a request, and what the request writes.
#[derive(Clone, Copy, Debug)]
pub struct KeyShard {
    /// Number of the shard.
    pub shard: u8,
    /// The epoch in which the gateway knows the shard; `None` before the first reply.
    pub epoch: Option<u128>,
    /// Becomes the epoch of a shard that has none.
    pub new_epoch: u128,
    /// The highest number of a request of this gateway that the shard has confirmed; 0 for none.
    pub confirmed: u64,
    /// How long a record lives after its call has ended or its lease was lost. After a loss of data, no key is claimed for
    /// this time and one lease.
    pub ttl: Duration,
    /// How long a claim is valid without an extension.
    pub lease: Duration,
}

/// The bounds of a shard, and of each client.
#[derive(Clone, Copy, Debug)]
pub struct KeyBounds {
    /// Records.
    pub max_keys: u64,
    /// Bytes of all records.
    pub max_size: u64,
    /// Records of one client.
    pub max_client_keys: u64,
    /// Bytes of one client.
    pub max_client_size: u64,
    /// What a record counts besides its outcome, in bytes.
    pub record_size: u64,
}

/// A key, its request and its claim. The claim belongs to the gateway that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// Hash of the key.
    pub key: [u8; 32],
    /// Digest of the request.
    pub digest: [u8; 32],
    /// Hash of the client.
    pub client: u64,
    /// Number of the claim among the requests of its gateway.
    pub number: u64,
}

/// A request for a claim.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest {
    /// The claim.
    pub claim: KeyClaim,
    /// Time of the server's clock after which the claim is not made, because its caller has left.
    pub not_after: Duration,
    /// Whether no key is claimed for a while after a loss of data.
    pub refuses_after_loss: bool,
    /// The bounds.
    pub bounds: KeyBounds,
}

/// What became of a key that was looked up or claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// The key was new, or had the same claim already.
    Claimed,
    /// Another claim is in progress.
    Running {
        /// Number of the claim, if it is one of this gateway.
        own_number: Option<u64>,
    },
    /// The call is complete. `None` if the outcome is not stored or cannot be read.
    Completed(Option<Bytes>),
    /// The lease of the claim was lost.
    Unknown,
    /// The key belongs to another request.
    DifferentRequest,
    /// The client has its share of records or bytes, and none of them is complete.
    TooManyOfClient,
    /// There is no room, and no complete record that the client may displace.
    TooManyInProgress,
    /// The request arrived too late.
    TooLate,
    /// The server has lost data.
    DataLost {
        /// Time until keys are claimed again.
        remaining: Duration,
    },
}

/// What became of a key that was looked up without being claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReply {
    /// There is no record, or one of another request.
    Absent,
    /// The call is in progress.
    Running,
    /// The call is complete. `None` if the outcome is not stored or cannot be read.
    Completed(Option<Bytes>),
    /// The lease of the claim was lost.
    Unknown,
}

/// An outcome of a claim.
#[derive(Clone, Debug)]
pub struct OutcomeRequest {
    /// The claim.
    pub claim: KeyClaim,
    /// Number of this request among the requests of its gateway.
    pub number: u64,
    /// The encoded outcome; empty if it is not stored.
    pub outcome: Bytes,
    /// The bounds.
    pub bounds: KeyBounds,
}

/// What became of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeReply {
    /// The record is complete. There may have been no room for its outcome.
    Stored,
    /// The key belongs to another claim.
    Lost,
    /// Other outcomes were dropped, and there is still no room: the request is to be sent again.
    MakingRoom,
}

/// A claim to release.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRelease {
    /// The claim.
    pub claim: KeyClaim,
    /// Time of the server's clock after which the claim cannot be made any more. Zero for a confirmed claim.
    pub not_after: Duration,
}

/// Upkeep of a shard: extends claims, removes expired records, and enforces changed bounds, in small pieces.
#[derive(Clone, Debug)]
pub struct UpkeepRequest {
    /// Claims to extend. A missing record is made again.
    pub claims: Vec<KeyClaim>,
    /// The bounds.
    pub bounds: KeyBounds,
}

/// What became of a claim that was to be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionReply {
    /// The claim is valid for another lease.
    Extended,
    /// The record was missing, and is there again.
    Restored,
    /// The claim is complete already.
    Completed,
    /// The key belongs to another claim.
    Lost,
}

/// What the upkeep of a shard found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpkeepReply {
    /// One for each claim, in their order.
    pub extensions: Vec<ExtensionReply>,
    /// Whether records are left to be removed.
    pub has_more: bool,
    /// Records of the shard.
    pub keys: u64,
    /// Bytes of the shard.
    pub size: u64,
}

/// A reply, with what the gateway learns of the shard.
#[derive(Clone, Debug)]
pub struct ShardReply<T> {
    /// The epoch of the shard.
    pub epoch: u128,
    /// Time until keys are claimed again after a loss of data; zero if there was none.
    pub lost_for: Duration,
    /// The reply.
    pub value: T,
}

/// An engine that holds records of idempotency keys. `gateway` is the id of the gateway that sends the request.
#[async_trait::async_trait]
pub(in crate::store) trait IdempotencyEngine: Send + Sync {
    /// Looks up a key, and claims it if it is new.
    async fn claim_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &ClaimRequest,
    ) -> Result<ShardReply<ClaimReply>, StateError>;

    /// Looks up a key of a request without claiming it.
    async fn look_up_key(&self, shard: u8, key: &[u8; 32], digest: &[u8; 32]) -> Result<KeyReply, StateError>;

    /// Completes a claim. An outcome without room is not stored, and its record is complete nevertheless.
    async fn complete_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &OutcomeRequest,
    ) -> Result<ShardReply<OutcomeReply>, StateError>;

    /// Releases claims that are not complete. Returns for each whether it is settled: there is no such claim, and none can
    /// be made any more.
    async fn release_keys(&self, gateway: &str, shard: u8, releases: &[ClaimRelease]) -> Result<Vec<bool>, StateError>;

    /// Looks after a shard.
    async fn maintain_keys(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &UpkeepRequest,
    ) -> Result<ShardReply<UpkeepReply>, StateError>;
}
