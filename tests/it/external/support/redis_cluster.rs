//! A real Redis cluster of three nodes on free ports, without or with replicas. It is stopped when it is dropped.

use super::redis::Redis;
use crate::support::{eventually, eventually_within};
use redis::{FromRedisValue, cmd};
use serde_json::{Value, json};
use std::time::Duration;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
const NODES: usize = 3;

/// Three nodes, each with a third of the slots.
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts an empty cluster, and waits until every node knows the others.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(Redis::start_cluster_node().await);
        }
        let cluster = Self { nodes };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let (first, last) = (at * SLOTS / NODES, (at + 1) * SLOTS / NODES - 1);
            let _: () = query(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await;
            let _: () = query(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await;
        }
        let first = &cluster.nodes[0];
        for node in &cluster.nodes[1..] {
            let (port, bus) = (node.port().to_string(), node.bus_port().unwrap().to_string());
            let _: () = query(first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        }
        cluster.wait_until_complete().await;
        cluster
    }

    /// Starts an empty cluster in which each node has a replica. A node that is gone is replaced after some seconds, and the
    /// others serve their slots meanwhile.
    pub async fn start_with_replicas() -> Self {
        let mut cluster = Self::start().await;
        for at in 0..NODES {
            let replica = Redis::start_cluster_node().await;
            let (port, bus) = (replica.port().to_string(), replica.bus_port().unwrap().to_string());
            let primary: String = query(&cluster.nodes[at], &["CLUSTER", "MYID"]).await;
            let _: () = query(&cluster.nodes[at], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
            eventually_within(Duration::from_secs(30), "the replica follows its primary", async || {
                replica.try_command::<()>(&format!("CLUSTER REPLICATE {primary}")).await.is_ok()
            })
            .await;
            cluster.nodes.push(replica);
        }
        for node in &cluster.nodes {
            for setting in ["cluster-require-full-coverage no", "cluster-node-timeout 4000"] {
                let _: () = node.command(&format!("CONFIG SET {setting}")).await;
            }
            eventually_within(Duration::from_secs(30), "the replicas are there", async || {
                let info: String = query(node, &["CLUSTER", "NODES"]).await;
                info.matches("slave").count() == NODES && info.matches("connected").count() == 2 * NODES
            })
            .await;
        }
        // Redis starts a first copy after some seconds, and replaces no node by a replica that has none.
        for replica in &cluster.nodes[NODES..] {
            eventually_within(Duration::from_secs(30), "the replica has the data", async || {
                replica.command::<String>("INFO replication").await.contains("master_link_status:up")
            })
            .await;
        }
        cluster
    }

    /// Returns which of the first nodes has a shard.
    pub async fn node_of_shard(&self, shard: u8) -> usize {
        let slot: usize = self.nodes[0].command(&format!("CLUSTER KEYSLOT {{{shard}}}")).await;
        (0..NODES).find(|at| slot < (at + 1) * SLOTS / NODES).unwrap()
    }

    /// Stops a node at once, without waiting for the others to notice.
    pub fn kill_node(&mut self, at: usize) {
        self.nodes[at].stop();
    }

    /// Waits until every node reports that all slots are served.
    pub async fn wait_until_complete(&self) {
        for node in &self.nodes {
            eventually_within(Duration::from_secs(30), "the cluster is complete", async || {
                let info: String = query(node, &["CLUSTER", "INFO"]).await;
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            })
            .await;
        }
    }

    /// The section `state` of a gateway's configuration, which names one node.
    pub fn section(&self) -> Value {
        json!({"redis": {"url": self.nodes[0].url(), "cluster": true}, "timeout": "1s"})
    }

    /// Returns how many keys each node holds.
    pub async fn key_counts(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for node in &self.nodes {
            counts.push(query(node, &["DBSIZE"]).await);
        }
        counts
    }

    /// Stops a node at once. Without replicas the cluster serves nothing then.
    pub async fn stop_node(&mut self, at: usize) {
        self.nodes[at].stop();
        let other = &self.nodes[(at + 1) % NODES];
        eventually("the cluster notices", async || {
            query::<String>(other, &["CLUSTER", "INFO"]).await.contains("cluster_state:fail")
        })
        .await;
    }

    /// Starts the stopped node again, with its data.
    pub async fn restart_node(&mut self, at: usize) {
        self.nodes[at].restart().await;
        self.wait_until_complete().await;
    }
}

async fn query<T: FromRedisValue>(node: &Redis, words: &[&str]) -> T {
    let mut connection = redis::Client::open(node.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
}
