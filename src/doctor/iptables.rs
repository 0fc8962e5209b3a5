//! Check for the iptables that would put the hook up.

use super::CheckReport;
use super::machine_state::MachineState;
use crate::hook::HookError;

pub(super) fn check(scene: &MachineState) -> CheckReport {
    match &scene.hook {
        Ok(places) => {
            let names: Vec<String> =
                places.iter().map(|place| format!("{} ({})", place.family, place.variant)).collect();
            CheckReport::fine(format!("usable: {}", names.join(", ")))
        }
        Err(error @ HookError::NotPermitted { .. }) => CheckReport::blind(error.to_string()),
        Err(error) => CheckReport::fault(error.to_string()),
    }
}
