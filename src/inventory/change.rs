//! A change in the inventory.

use serde::Serialize;

use super::inventory_time::InventoryTime;
use crate::terms::place;

/// Something that became different.
#[derive(Debug, Clone, Serialize)]
pub struct InventoryChange {
    /// Its number, which increases with time.
    pub id: i64,
    /// Time of the change.
    pub at: InventoryTime,
    /// `new_host`, `new_service`, `new_client`, `banner_changed`, `hassh_changed`, `certificate_changed`,
    /// `host_key_changed`, `new_host_key`, `finding_new`, `finding_gone`, `service_gone`, `service_back`.
    pub kind: String,
    /// The host.
    pub address: String,
    /// The TCP port, 0 for a client.
    pub port: u16,
    /// The protocol of the service.
    pub protocol: String,
    /// The earlier value.
    pub old: Option<String>,
    /// The new value.
    pub new: Option<String>,
    /// The rule of the finding.
    pub rule: Option<String>,
    /// For `service_gone`: `refused` (a connection was refused) or `unseen` (for too long).
    pub why: Option<String>,
    /// The sensor, `guard/edge`.
    pub sensor: String,
}

impl InventoryChange {
    /// Returns `192.0.2.1:22`; for a client, the address.
    pub fn place(&self) -> String {
        place(&self.address, self.port)
    }

    /// Returns its kind for a person: `new host`, `service gone (unseen)`.
    pub fn words(&self) -> String {
        let kind = self.kind.replace('_', " ");
        self.why.as_ref().map_or(kind.clone(), |why| format!("{kind} ({why})"))
    }
}
