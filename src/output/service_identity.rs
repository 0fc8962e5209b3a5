//! Product and version that software names itself, in the terms of nmap's service detection. Used if no
//! fingerprint database names them.

use crate::event::{ApplicationFacts, ProductFacts};

/// The product of an identification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServiceIdentity {
    pub(super) product: String,
    pub(super) version: Option<String>,
    /// Further parts: a system, modules.
    pub(super) extra: Option<String>,
    /// CPE 2.2 name, for products whose name in the dictionary is certain.
    pub(super) cpe: Option<String>,
}

/// Product names before their version, nmap's word for each, and the start of their CPE names.
const PRODUCTS: [(&str, &str, &str); 6] = [
    ("OpenSSH", "OpenSSH", "cpe:/a:openbsd:openssh:"),
    ("dropbear", "Dropbear sshd", "cpe:/a:matt_johnston:dropbear_ssh_server:"),
    ("libssh", "libssh", "cpe:/a:libssh:libssh:"),
    ("nginx", "nginx", "cpe:/a:igor_sysoev:nginx:"),
    ("Apache", "Apache httpd", "cpe:/a:apache:http_server:"),
    ("lighttpd", "lighttpd", "cpe:/a:lighttpd:lighttpd:"),
];

impl ServiceIdentity {
    /// Reads a server's banner.
    pub(super) fn of(said: &ApplicationFacts) -> Option<Self> {
        match said {
            ApplicationFacts::Ssh(facts) => Self::of_ssh(&facts.server.as_ref()?.software_version),
            ApplicationFacts::Http(facts) => Self::of_server(facts.response.as_ref()?.header("Server")?),
            ApplicationFacts::Tls(_) | ApplicationFacts::Greeting(_) | ApplicationFacts::Other(_) => None,
        }
    }

    /// Reads software version and comments of an SSH identification: `OpenSSH_9.2p1 Debian-2+deb12u3`.
    fn of_ssh(software: &str) -> Option<Self> {
        let (word, comments) = software.split_once(' ').unwrap_or((software, ""));
        let (name, version) = split(word, &['_', '-'])?;
        // nmap counts a distribution's package as part of the version: `9.2p1 Debian 2+deb12u3`.
        let package = comments.split(' ').next().filter(|package| package.contains('-'));
        let full = package.map(|package| format!("{version} {}", package.replacen('-', " ", 1)));
        Some(Self::new(name, version, full, None))
    }

    /// Reads a `Server` field: `Apache/2.4.57 (Debian) PHP/8.2`.
    fn of_server(server: &str) -> Option<Self> {
        let (word, rest) = server.split_once(' ').unwrap_or((server, ""));
        let extra = Some(rest.trim().to_owned()).filter(|extra| !extra.is_empty());
        match split(word, &['/']) {
            Some((name, version)) => Some(Self::new(name, version, None, extra)),
            None if word.is_empty() => None,
            None => {
                let product =
                    PRODUCTS.iter().find(|(name, ..)| *name == word).map_or(word, |(_, said, _)| said);
                Some(Self { product: product.to_owned(), extra, ..Self::default() })
            }
        }
    }

    fn new(name: &str, version: &str, full: Option<String>, extra: Option<String>) -> Self {
        let known = PRODUCTS.iter().find(|(other, ..)| *other == name);
        let certain = version.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        Self {
            product: known.map_or(name, |(_, product, _)| product).to_owned(),
            cpe: known.filter(|_| certain).map(|(.., prefix)| format!("{prefix}{version}")),
            version: Some(full.unwrap_or_else(|| version.to_owned())),
            extra,
        }
    }
}

impl From<ServiceIdentity> for ProductFacts {
    fn from(identity: ServiceIdentity) -> Self {
        let ServiceIdentity { product, version, cpe, .. } = identity;
        Self { product: Some(product), version, cpe, ..Self::default() }
    }
}

/// Returns a name and its version: the part after the first of `separators` that a digit follows.
fn split<'a>(word: &'a str, separators: &[char]) -> Option<(&'a str, &'a str)> {
    let places = word.match_indices(separators).map(|(place, _)| place);
    let mut halves = places.filter_map(|place| Some((word.get(..place)?, word.get(place + 1..)?)));
    halves.find(|(name, version)| !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(identity: Option<ServiceIdentity>) -> (String, String, String, String) {
        let ServiceIdentity { product, version, extra, cpe } = identity.unwrap_or_default();
        (product, version.unwrap_or_default(), extra.unwrap_or_default(), cpe.unwrap_or_default())
    }

    #[test]
    fn ssh_software_is_named_as_nmap_names_it() {
        for (software, product, version, cpe) in [
            (
                "OpenSSH_9.2p1 Debian-2+deb12u3",
                "OpenSSH",
                "9.2p1 Debian 2+deb12u3",
                "cpe:/a:openbsd:openssh:9.2p1",
            ),
            (
                "OpenSSH_8.9p1 Ubuntu-3ubuntu0.1",
                "OpenSSH",
                "8.9p1 Ubuntu 3ubuntu0.1",
                "cpe:/a:openbsd:openssh:8.9p1",
            ),
            ("OpenSSH_9.8p1", "OpenSSH", "9.8p1", "cpe:/a:openbsd:openssh:9.8p1"),
            (
                "dropbear_2022.83",
                "Dropbear sshd",
                "2022.83",
                "cpe:/a:matt_johnston:dropbear_ssh_server:2022.83",
            ),
            ("Erlang/4.15.2", "", "", ""),
            ("AsyncSSH_2.10.1", "AsyncSSH", "2.10.1", ""),
            ("Go", "", "", ""),
            ("OpenSSH_<script>", "", "", ""),
            ("OpenSSH_9.2\u{e9} x", "OpenSSH", "9.2\u{e9}", ""),
        ] {
            let expected = (product.to_owned(), version.to_owned(), String::new(), cpe.to_owned());
            assert_eq!(told(ServiceIdentity::of_ssh(software)), expected, "{software}");
        }
    }

    #[test]
    fn server_fields_are_named_as_nmap_names_them() {
        for (server, product, version, extra, cpe) in [
            ("nginx/1.22.1", "nginx", "1.22.1", "", "cpe:/a:igor_sysoev:nginx:1.22.1"),
            ("nginx", "nginx", "", "", ""),
            ("Apache", "Apache httpd", "", "", ""),
            (
                "Apache/2.4.57 (Debian)",
                "Apache httpd",
                "2.4.57",
                "(Debian)",
                "cpe:/a:apache:http_server:2.4.57",
            ),
            ("SimpleHTTP/0.6 Python/3.11.2", "SimpleHTTP", "0.6", "Python/3.11.2", ""),
            ("", "", "", "", ""),
        ] {
            let expected = (product.to_owned(), version.to_owned(), extra.to_owned(), cpe.to_owned());
            assert_eq!(told(ServiceIdentity::of_server(server)), expected, "{server}");
        }
    }
}
