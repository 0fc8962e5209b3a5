//! What a scan asks for beside its own requests.

/// A request that a scan must make for a rule to see what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeRequest {
    /// `GET`.
    pub method: String,
    /// Request target in origin form.
    pub path: String,
    /// Header fields beside those that the scan sends anyway.
    pub headers: Vec<(String, String)>,
}
