//! Check for files that killed guards have left. They do no harm.

use super::CheckReport;
use crate::guard::leftovers;

pub(super) fn check() -> CheckReport {
    let left: Vec<String> = leftovers::find().iter().map(|path| path.display().to_string()).collect();
    CheckReport::fine(match left.as_slice() {
        [] => "no killed guard has left a socket or accounts".to_owned(),
        left => format!(
            "the next guard of the same user removes what killed guards have left: {}",
            left.join(", ")
        ),
    })
}
