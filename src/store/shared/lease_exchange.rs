//! What a gateway tells the shared state of its concurrent calls, and what it learns: for each agent the slots that it
//! keeps, and those that it wants.

/// The entries of one trip that one server process handles at once.
#[derive(Clone, Debug)]
pub struct LeaseBatch {
    /// Number of the batch, which grows with each one of this gateway. The server ignores an entry of an earlier batch
    /// that arrives late.
    pub sequence: u64,
    /// The shard that holds every entry, from [`SharedState::shard_of`](super::SharedState::shard_of).
    pub shard: u8,
    /// The entries; each id once.
    pub entries: Vec<LeaseEntry>,
}

/// The slots of one agent. Each one allows one concurrent call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEntry {
    /// Names the agent, equal in every gateway.
    pub id: u128,
    /// Maximum of the slots of all gateways.
    pub max: u32,
    /// Slots that the gateway keeps. The server counts them even if they exceed the maximum: their calls are in progress.
    pub held: u32,
    /// Slots that the gateway would like to have, those that it keeps included.
    pub wanted: u32,
    /// Calls of the gateway that wait for a slot.
    pub waiting: u32,
}

/// What the server replies for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReply {
    /// The slots that the gateway has for the lifetime of its lease; at least those that it keeps.
    pub slots: u32,
    /// The slots of all gateways.
    pub total: u32,
    /// Maximum of slots above which the gateway gives back each slot whose call ends, because calls of others wait; the
    /// maximum of the agent if none waits.
    pub share: u32,
}
