use super::*;

const OWN: &str = include_str!("../../../../../tests/fixtures/fingerprints.toml");

fn own() -> FingerprintSet {
    FingerprintSet::parse("fingerprints.toml", OWN).expect("the fixture is well-formed")
}

#[test]
fn ssh_facts_name_software_and_system() {
    let facts = own().ssh(b"OpenSSH_9.2p1 Debian-2+deb12u3").expect("it is known");
    assert_eq!(facts.vendor.as_deref(), Some("OpenBSD"));
    assert_eq!(facts.product.as_deref(), Some("OpenSSH"));
    assert_eq!(facts.version.as_deref(), Some("9.2p1"));
    assert_eq!(facts.cpe.as_deref(), Some("cpe:/a:openbsd:openssh:9.2p1"));
    assert_eq!(facts.os.as_deref(), Some("Debian Linux"));
}

#[test]
fn the_first_fingerprint_wins_and_unless_takes_back() {
    let fingerprints = own();
    let name = |text: &[u8]| fingerprints.identify("ssh.banner", text).map(|found| found.name().to_owned());
    assert_eq!(name(b"OpenSSH_9.2p1 Debian-2").as_deref(), Some("OpenSSH on Debian"));
    assert_eq!(name(b"OpenSSH_9.2p1").as_deref(), Some("OpenSSH"));
    assert_eq!(name(b"OpenSSH_for_Windows_9.5"), None);
    assert_eq!(name(b"openssh_9.2p1"), None);
}

#[test]
fn a_version_that_is_not_known_is_a_dash_in_a_cpe_name() {
    let facts = own().http_server(b"nginx").expect("it is known");
    assert_eq!(facts.version, None);
    assert_eq!(facts.cpe.as_deref(), Some("cpe:/a:f5:nginx:-"));
}

#[test]
fn a_device_stands_in_where_no_software_is_named() {
    let facts = own().html_title(b"Example Router X1").expect("it is known");
    assert_eq!(facts.product.as_deref(), Some("Router X1"));
    assert_eq!(facts.cpe, None);
}

#[test]
fn a_response_is_known_by_whatever_field_names_a_product() {
    use crate::banner::{HttpHeader, HttpHeaders};
    let headers = |fields: &[(&'static str, &'static str)]| {
        let fields =
            fields.iter().map(|(name, value)| HttpHeader { name: name.as_bytes(), value: value.as_bytes() });
        HttpHeaders::new(fields.collect())
    };
    let response = |fields: &[(&'static str, &'static str)]| ResponseHead {
        line: b"HTTP/1.1 200 OK",
        version: b"HTTP/1.1",
        status: 200,
        reason: b"OK",
        headers: headers(fields),
        body: b"",
    };
    let product = |fields, title: Option<&[u8]>| own().http_response(&response(fields), title)?.product;
    assert_eq!(product(&[("server", "nginx/1.25.3")], None).as_deref(), Some("nginx"));
    assert_eq!(
        product(&[("Server", "unheard of")], Some(b"Example Router X1")).as_deref(),
        Some("Router X1")
    );
    assert_eq!(product(&[("Server", "unheard of")], None), None);
}

#[test]
fn a_field_that_asks_for_a_missing_group_is_refused() {
    let text = "[[database]]\nmatches = 'a'\n[[database.fingerprint]]\nname = 'b'\npattern = '(c)'\nfields = { d = 2 }";
    let error = FingerprintSet::parse("x.toml", text).expect_err("there is one group");
    assert_eq!(error.to_string(), "x.toml: fingerprint \"b\": d asks for group 2 of a pattern with 1 groups");
}

#[test]
fn a_pattern_that_would_grow_without_bound_is_refused() {
    let text = "[[database]]\nmatches = 'a'\n[[database.fingerprint]]\nname = 'b'\npattern = '((a{1000}){1000}){1000}'";
    let error = FingerprintSet::parse("x.toml", text).expect_err("it is too large");
    assert!(error.to_string().contains("size limit"), "{error}");
}

#[test]
fn braces_that_lead_in_a_circle_leave_the_field_out() {
    let text = "[[database]]\nmatches = 'a'\n[[database.fingerprint]]\nname = 'b'\npattern = 'c'\n\
                fields = { d = '{e}', e = '{d}', f = 'plain {braces' }";
    let fingerprints = FingerprintSet::parse("x.toml", text).expect("it is well-formed");
    let found = fingerprints.identify("a", b"c").expect("it matches");
    assert_eq!(found.fields().collect::<Vec<_>>(), [("f", "plain {braces")]);
}

#[test]
fn a_folder_without_fingerprints_and_an_xml_file_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert!(matches!(FingerprintSet::load(folder.path()), Err(FingerprintError::Empty { .. })));
    let xml = folder.path().join("ssh_banners.xml");
    std::fs::write(&xml, "<fingerprints/>").expect("it can be written");
    assert!(matches!(FingerprintSet::load(&xml), Err(FingerprintError::Recog { .. })));
    std::fs::write(folder.path().join("a.toml"), OWN).expect("it can be written");
    assert!(!FingerprintSet::load(folder.path()).expect("one file is there").is_empty());
}
