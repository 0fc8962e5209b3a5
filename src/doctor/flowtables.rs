//! Check for flowtables, which forward packets past every hook.

use super::CheckReport;
use super::machine_state::MachineState;

pub(super) fn check(scene: &MachineState) -> CheckReport {
    let nft = match &scene.nft {
        Ok(nft) => nft,
        Err(blind) => return CheckReport::blind(blind.to_string()),
    };
    let led = scene.led();
    let offloading: Vec<String> = nft
        .offloading(&led)
        .map(ToString::to_string)
        .chain(
            scene
                .foreign_rules()
                .filter(|rule| rule.text.contains("-j FLOWOFFLOAD"))
                .map(|rule| rule.text.clone()),
        )
        .collect();
    if offloading.is_empty() {
        return CheckReport::nothing("no rule uses a flowtable");
    }
    CheckReport::fault(format!(
        "the guard does not see all packets of flows in a flowtable; exclude the hook's traffic \
         from: {}",
        offloading.join("; ")
    ))
}
