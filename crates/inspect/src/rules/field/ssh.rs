//! Fields of an SSH identification and KEXINIT.

use super::{BannerField, FieldRow};
use crate::terms::Side;

pub(super) const FIELDS: &[FieldRow] = &[
    FieldRow::either("banner", BannerField::Banner),
    FieldRow::either("protocol", BannerField::Protocol),
    FieldRow::either("software", BannerField::Software),
    FieldRow::either("comments", BannerField::Comments),
    FieldRow::of(Side::Client, "hassh", BannerField::Hassh),
    FieldRow::of(Side::Server, "hassh_server", BannerField::HasshServer),
    FieldRow::either("kex", BannerField::Kex),
    FieldRow::either("host_key", BannerField::HostKey),
    FieldRow::either("encryption", BannerField::Encryption),
    FieldRow::either("mac", BannerField::Mac),
    FieldRow::either("compression", BannerField::Compression),
    FieldRow::either("marker", BannerField::Marker),
];
