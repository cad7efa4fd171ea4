//! Deliveries of tasks that the broker keeps until they are acknowledged (QoS 1, R161): a task is acknowledged when it
//! is done or refused, so that the broker delivers it again to a gateway that stopped in the middle of it.

use crate::mqtt_client::{IncomingMessage, MqttSender};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

/// One delivery of a message that is not acknowledged yet.
#[derive(Debug)]
pub(super) struct Delivery {
    /// Sender of the connection on which the message arrived.
    sender: MqttSender,
    packet_id: u16,
    /// Length of the message, in bytes.
    pub(super) length: usize,
}

impl Delivery {
    /// Returns the delivery of `message`; `None` for a message that needs no acknowledgement.
    pub(super) fn of(message: &IncomingMessage, sender: &MqttSender) -> Option<Self> {
        (message.qos > 0).then(|| Self {
            sender: sender.clone(),
            packet_id: message.packet_id,
            length: message.length(),
        })
    }

    /// Acknowledges the message. After its connection is lost, the broker delivers it again.
    pub(super) async fn acknowledge(self) {
        self.sender.acknowledge(self.packet_id).await;
    }
}

/// The deliveries of the tasks that are not done.
#[derive(Clone, Debug, Default)]
pub(super) struct UnfinishedDeliveries(Arc<Mutex<UnfinishedTasks>>);

#[derive(Debug, Default)]
struct UnfinishedTasks {
    /// By task id.
    deliveries: HashMap<Uuid, Delivery>,
    /// Tasks whose results could not be published, until [`take_abandoned`](UnfinishedDeliveries::take_abandoned).
    abandoned: Vec<Uuid>,
}

impl UnfinishedDeliveries {
    /// Holds the delivery of a task until the task is done.
    pub(super) fn hold(&self, task: Uuid, delivery: Delivery) {
        self.0.lock().deliveries.insert(task, delivery);
    }

    /// Whether the delivery of a task is held: it is not done.
    pub(super) fn has(&self, task: Uuid) -> bool {
        self.0.lock().deliveries.contains_key(&task)
    }

    /// Takes the delivery of a task that is done.
    pub(super) fn take(&self, task: Uuid) -> Option<Delivery> {
        self.0.lock().deliveries.remove(&task)
    }

    /// Drops the delivery of a task whose result cannot be published: if the broker delivers the task again, it is
    /// executed again.
    pub(super) fn abandon(&self, task: Uuid) {
        let mut unfinished = self.0.lock();
        unfinished.deliveries.remove(&task);
        unfinished.abandoned.push(task);
    }

    /// Takes the ids of the tasks that were abandoned.
    pub(super) fn take_abandoned(&self) -> Vec<Uuid> {
        std::mem::take(&mut self.0.lock().abandoned)
    }

    /// Handles a further delivery of a task. If the broker repeats an unfinished task on a new connection, the delivery
    /// replaces that of the lost connection. Any other one is returned: it can be acknowledged at once.
    pub(super) fn hold_if_repeated(&self, task: Uuid, delivery: Delivery) -> Option<Delivery> {
        match self.0.lock().deliveries.get_mut(&task) {
            Some(held) if held.sender.is_closed() => {
                *held = delivery;
                None
            }
            _ => Some(delivery),
        }
    }
}
