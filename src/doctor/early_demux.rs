//! Check for the kernel's early lookup of sockets, which loses packets that wait in the queue.

use super::CheckReport;
use super::machine_state::MachineState;
use crate::hook::early_demux::TURN_OFF;
use crate::hook::hook_state;

pub(super) fn check(scene: &MachineState) -> CheckReport {
    if hook_state::hooks(scene.places()).any(|(_, config)| config.loses_to_early_demux()) {
        return CheckReport::fault(format!(
            "a client's FIN gets lost if its socket closes while the FIN waits in the queue, and its port stays \
             in use until it repeats the FIN; run `{TURN_OFF}`",
        ));
    }
    CheckReport::fine("the kernel looks up no socket before a packet of the hook leaves the queue")
}
