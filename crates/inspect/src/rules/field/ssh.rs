//! Fields of an SSH identification and KEXINIT.

use super::{Field, Row};
use crate::terms::Side;

pub(super) const FIELDS: &[Row] = &[
    Row::either("banner", Field::Banner),
    Row::either("protocol", Field::Protocol),
    Row::either("software", Field::Software),
    Row::either("comments", Field::Comments),
    Row::of(Side::Client, "hassh", Field::Hassh),
    Row::of(Side::Server, "hassh_server", Field::HasshServer),
    Row::either("kex", Field::Kex),
    Row::either("host_key", Field::HostKey),
    Row::either("encryption", Field::Encryption),
    Row::either("mac", Field::Mac),
    Row::either("compression", Field::Compression),
    Row::either("marker", Field::Marker),
];
