//! Requests that rules add to a scan's own.

/// A request that a scan must make so that a rule sees its response.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbeRequest {
    /// `GET`.
    pub method: String,
    /// Request target in origin form.
    pub path: String,
    /// Header fields in addition to those of every request.
    pub headers: Vec<(String, String)>,
}
