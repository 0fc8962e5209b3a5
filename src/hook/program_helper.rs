//! Helper process that runs iptables for a guard that is not permitted to run programs.
//!
//! It is a helper process ([`crate::helper_process`], `bannerwall runner`), started before the guard gives up
//! its rights. It reads nothing from the network. A request is a [`IptablesCall`] (read the table, or change
//! the hook's chains and jumps), a [`BanCall`] for the table of bans, or a [`MachineQuery`] about the
//! machine.

use std::io;

use serde::{Deserialize, Serialize};

use super::ban_call::BanCall;
use super::program_calls::{IptablesCall, MachineQuery, ProgramOutput};
use crate::helper_process::{self, HelperProcess, HelperRequests};

/// Subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "runner";
/// Name in process lists.
const NAME: &std::ffi::CStr = c"bannerwall-run";

/// Request to the helper process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum ProgramHelperRequest {
    Look(MachineQuery),
    Ban(BanCall),
    Call(IptablesCall),
}

/// Result of a request.
#[derive(Debug, Serialize, Deserialize)]
enum ProgramHelperReply {
    Ended(ProgramOutput),
    /// The program could not be run.
    Failed(String),
}

/// Handle of the helper process, which exits when this is dropped.
#[derive(Debug)]
pub struct ProgramHelper(HelperProcess);

impl ProgramHelper {
    /// Starts the process, with the current rights.
    ///
    /// # Errors
    ///
    /// The program cannot be started again.
    pub(crate) fn start() -> io::Result<Self> {
        HelperProcess::start(SUBCOMMAND, "the helper process that runs iptables has exited").map(Self)
    }

    /// True if the process has exited.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Runs a program.
    ///
    /// # Errors
    ///
    /// The program cannot be run, or the process has exited.
    pub(super) fn call(&self, call: &IptablesCall) -> io::Result<ProgramOutput> {
        self.request(call)
    }

    /// Runs `nft` about the table of bans.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(super) fn ban(&self, call: &BanCall) -> io::Result<ProgramOutput> {
        self.request(call)
    }

    /// Queries the machine.
    ///
    /// # Errors
    ///
    /// As [`Self::call`].
    pub(super) fn ask(&self, question: MachineQuery) -> io::Result<ProgramOutput> {
        self.request(&question)
    }

    fn request(&self, request: &impl Serialize) -> io::Result<ProgramOutput> {
        match self.0.request(request)? {
            ProgramHelperReply::Ended(ended) => Ok(ended),
            ProgramHelperReply::Failed(why) => Err(io::Error::other(why)),
        }
    }
}

/// Handles requests on stdin until its end; this is `bannerwall runner`.
///
/// # Errors
///
/// A request is invalid, or a pipe breaks.
pub(crate) fn serve() -> io::Result<()> {
    helper_process::begin(NAME)?;
    HelperRequests::of_parent().answer(|request| {
        let ended = match request {
            ProgramHelperRequest::Look(question) => question.ask(),
            ProgramHelperRequest::Ban(call) => call.run(),
            // The guard reads the network and may be compromised. So this process checks again that only the
            // hook can be changed.
            ProgramHelperRequest::Call(call) if call.is_ours() => call.run(),
            ProgramHelperRequest::Call(_) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "refused: the rules do not belong to the hook",
            )),
        };
        ended.map_or_else(|error| ProgramHelperReply::Failed(error.to_string()), ProgramHelperReply::Ended)
    })
}

#[cfg(test)]
mod tests {
    use super::super::ban_call::BanElement;
    use super::super::program_calls::IptablesProgram;
    use super::super::{IpFamily, IptablesVariant};
    use super::*;

    fn call(changes: &[&str]) -> IptablesCall {
        IptablesCall {
            family: IpFamily::V4,
            variant: IptablesVariant::Nft,
            program: IptablesProgram::Restore,
            changes: changes.iter().map(|change| (*change).to_owned()).collect(),
        }
    }

    #[test]
    fn nothing_but_the_hook_can_be_asked_for() {
        for ours in [
            &[][..],
            &[":BANNERWALL - [0:0]", "-A BANNERWALL -m mark --mark 0x0/0x3 -j RETURN"],
            &["-A FORWARD -p tcp -j BANNERWALL", "-D INPUT ! -o lo -p tcp -j BANNERWALL"],
            &["-F BANNERWALL-PASS", "-X BANNERWALL-PASS"],
        ] {
            assert!(call(ours).is_ours(), "{ours:?}");
        }
        for foreign in [
            "-F INPUT",
            "-F",
            "-P INPUT DROP",
            ":INPUT DROP [0:0]",
            "-A INPUT -j ACCEPT",
            "-A INPUT -j BANNERWALL -j ACCEPT",
            "-D INPUT -j OTHERS -m comment --comment BANNERWALL",
            "-A BANNERWALLS -j DROP",
            "-A BANNERWALL -j TEE --gateway 192.0.2.1",
            "-A BANNERWALL --modprobe=/tmp/x -j RETURN",
            "-A BANNERWALL -m bpf --object-pinned /x -j RETURN",
            "-A BANNERWALL -g OTHERS",
            "-X OTHERS",
            "*filter",
            "COMMIT",
            "-F BANNERWALL\n-F INPUT",
            "-A BANNERWALL -j RETURN\nCOMMIT\n*filter\n-F INPUT",
            "",
        ] {
            assert!(!call(&[foreign]).is_ours(), "{foreign:?}");
        }
    }

    #[test]
    fn a_request_about_bans_is_one_of_our_table() {
        let address = "192.0.2.1".parse().unwrap();
        let add = vec![BanElement::new(address, 60, "no-sqlmap GET /")];
        for call in [
            BanCall::Change { remove: vec![address], add },
            BanCall::Read { elements: true },
            BanCall::Remove,
            BanCall::Try,
        ] {
            let text = serde_json::to_string(&call).unwrap();
            let request: ProgramHelperRequest = serde_json::from_str(&text).unwrap();
            assert!(matches!(request, ProgramHelperRequest::Ban(read) if read == call), "{text}");
        }
        for wrong in [r#"{"Change":{"remove":["-f"],"add":[]}}"#, r#"{"Read":{"table":"filter"}}"#] {
            assert!(serde_json::from_str::<ProgramHelperRequest>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_a_call_and_nothing_else() {
        let text = serde_json::to_string(&call(&["-F BANNERWALL"])).unwrap();
        assert_eq!(serde_json::from_str::<IptablesCall>(&text).unwrap(), call(&["-F BANNERWALL"]));
        for wrong in ["{}", r#"{"program":"sh"}"#] {
            assert!(serde_json::from_str::<IptablesCall>(wrong).is_err(), "{wrong}");
        }
    }
}
