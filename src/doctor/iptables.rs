//! Check for the iptables that would put the hook up.

use super::Report;
use super::scene::Scene;
use crate::hook::HookError;

pub(super) fn check(scene: &Scene) -> Report {
    match &scene.hook {
        Ok(places) => {
            let names: Vec<String> =
                places.iter().map(|place| format!("{} ({})", place.family, place.variant)).collect();
            Report::fine(format!("usable: {}", names.join(", ")))
        }
        Err(error @ HookError::NotPermitted { .. }) => Report::blind(error.to_string()),
        Err(error) => Report::fault(error.to_string()),
    }
}
