//! What a flowtable forwards passes by every hook, ours among them.

use super::Report;
use super::scene::Scene;

pub(super) fn check(scene: &Scene) -> Report {
    let nft = match &scene.nft {
        Ok(nft) => nft,
        Err(blind) => return Report::blind(blind.to_string()),
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
        return Report::fine("no rule hands flows to a flowtable");
    }
    Report::fault(format!(
        "flows that a flowtable forwards are not seen, whole or from some packet on; leave what is judged \
         out of: {}",
        offloading.join("; ")
    ))
}
