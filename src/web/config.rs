//! Prometheus' web configuration file: TLS and users of a server, as for its exporters.
//!
//! It supports these parts of
//! <https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>:
//! `tls_server_config` with files, clients' certificates and versions, and `basic_auth_users`. Other keys are
//! refused: an ignored key could be one that restricts access.

use std::collections::{BTreeMap, HashMap};
use std::fs::File as OpenFile;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::Spanned;
use tokio_rustls::rustls::ServerConfig;

use super::WebUsers;
use super::tls::{ClientCertificates, TlsFileError, TlsFileKind, WebTlsSettings};

/// Limit of the file's size, in bytes.
const LIMIT: u64 = 1 << 20;

/// TLS and users of a server, loaded from files.
#[derive(Debug, Clone)]
pub struct WebConfig {
    tls: Option<Arc<ServerConfig>>,
    users: Option<Arc<WebUsers>>,
}

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    /// The file is unreadable.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file is invalid.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Reason.
        why: String,
    },
}

/// Content of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WebConfigFile {
    tls_server_config: Option<TlsSection>,
    basic_auth_users: Option<BTreeMap<String, Spanned<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TlsSection {
    cert_file: Option<Spanned<PathBuf>>,
    key_file: Option<Spanned<PathBuf>>,
    client_auth_type: Option<Spanned<String>>,
    client_ca_file: Option<Spanned<PathBuf>>,
    min_version: Option<Spanned<String>>,
    max_version: Option<Spanned<String>>,
}

/// Line number, and the fault there.
type LineFault = (u64, String);

impl WebConfig {
    /// Returns TLS and users for a server.
    pub(crate) fn parts(&self) -> (Option<Arc<ServerConfig>>, Option<Arc<WebUsers>>) {
        (self.tls.clone(), self.users.clone())
    }

    /// True if passwords would cross the network unencrypted.
    pub(crate) const fn shows_passwords(&self) -> bool {
        self.users.is_some() && self.tls.is_none()
    }

    /// Reads a file and those that it names, relative to its folder.
    ///
    /// # Errors
    ///
    /// A file is unreadable or invalid.
    pub fn read(path: &Path) -> Result<Self, WebConfigError> {
        let text = text(path).map_err(|error| WebConfigError::File { path: path.into(), error })?;
        let fault = |(line, why)| WebConfigError::Line { path: path.into(), line, why };
        let document = parse(&text).map_err(fault)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let tls = document.tls_server_config.map(|section| section.read(folder)).transpose();
        let users = document.basic_auth_users.filter(|users| !users.is_empty()).map(users).transpose();
        Ok(Self { tls: tls.map_err(fault)?.flatten(), users: users.map_err(fault)?.map(Arc::new) })
    }
}

/// Reads the file up to the limit: it may be an endless device.
fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    OpenFile::open(path)?.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(io::Error::other(format!("it is larger than {LIMIT} bytes")));
    }
    Ok(text)
}

/// Parses a text; one without a value (empty, or only comments) is an empty configuration.
fn parse(text: &str) -> Result<WebConfigFile, LineFault> {
    let document: Result<Option<WebConfigFile>, _> = serde_saphyr::from_str(text);
    document.map(Option::unwrap_or_default).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        (line, reason(&error))
    })
}

/// Returns the fault in one line without its place. Other lines of the file may hold hashes, which must not
/// be printed.
fn reason(error: &serde_saphyr::Error) -> String {
    let told = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let first = told.lines().next().unwrap_or_default();
    first.find(" at line ").and_then(|at| first.get(..at)).unwrap_or(first).to_owned()
}

fn users(named: BTreeMap<String, Spanned<String>>) -> Result<WebUsers, LineFault> {
    let mut hashes = HashMap::new();
    for (name, hash) in named {
        if !WebUsers::knows(&hash.value) {
            let why = format!("basic_auth_users: {name}: not a bcrypt hash: create one with `htpasswd -nbB`");
            return Err((line(&hash), why));
        }
        hashes.insert(name, hash.value);
    }
    Ok(WebUsers::new(hashes))
}

fn line<T>(value: &Spanned<T>) -> u64 {
    value.referenced.line()
}

impl TlsSection {
    /// Loads the named files; none if it names none.
    fn read(self, folder: &Path) -> Result<Option<Arc<ServerConfig>>, LineFault> {
        let (certificates, key) = match (&self.cert_file, &self.key_file) {
            (Some(certificates), Some(key)) => (certificates, key),
            (Some(lone), None) => return Err((line(lone), "cert_file without key_file".to_owned())),
            (None, Some(lone)) => return Err((line(lone), "key_file without cert_file".to_owned())),
            (None, None) => return self.has_nothing().map(|()| None),
        };
        let clients = self.clients()?;
        let place = |file: &Spanned<PathBuf>| folder.join(&file.value);
        let authorities = clients.as_ref().map(|(file, wanted)| (place(file), *wanted));
        let (chain, own) = (place(certificates), place(key));
        let tls = WebTlsSettings {
            certificates: &chain,
            key: &own,
            clients: authorities.as_ref().map(|(path, wanted)| (path.as_path(), *wanted)),
            versions: self.versions()?,
        };
        let config = tls.config().map_err(|TlsFileError { file, path, why }| {
            let told = match file {
                TlsFileKind::Certificates => Some(certificates),
                TlsFileKind::Key => Some(key),
                TlsFileKind::ClientAuthorities => self.client_ca_file.as_ref(),
            };
            (told.map_or(1, line), format!("{}: {why}", path.display()))
        });
        config.map(Some)
    }

    /// Checks that nothing else is set without a certificate, since there is no TLS then.
    fn has_nothing(&self) -> Result<(), LineFault> {
        let words = [&self.client_auth_type, &self.min_version, &self.max_version];
        let lone = words.into_iter().flatten().map(line).chain(self.client_ca_file.as_ref().map(line)).min();
        match lone {
            Some(line) => Err((line, "tls_server_config has neither cert_file nor key_file".to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the authorities of clients' certificates, if any are requested.
    fn clients(&self) -> Result<Option<(&Spanned<PathBuf>, ClientCertificates)>, LineFault> {
        let wanted = match self.client_auth_type.as_ref().map(|wanted| (wanted, wanted.value.as_str())) {
            None | Some((_, "" | "NoClientCert")) => None,
            Some((it, "VerifyClientCertIfGiven")) => Some((it, ClientCertificates::IfGiven)),
            Some((it, "RequireAndVerifyClientCert")) => Some((it, ClientCertificates::Required)),
            Some((it, "RequestClientCert" | "RequireAnyClientCert")) => {
                return Err((
                    line(it),
                    format!(
                        "client_auth_type {}: an unverified certificate proves \
                                               nothing, so this type is not supported",
                        it.value
                    ),
                ));
            }
            Some((it, _)) => {
                return Err((
                    line(it),
                    "client_auth_type must be NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert"
                        .to_owned(),
                ));
            }
        };
        match (wanted, &self.client_ca_file) {
            (None, None) => Ok(None),
            (Some((_, wanted)), Some(file)) => Ok(Some((file, wanted))),
            (Some((it, _)), None) => Err((line(it), format!("{} without client_ca_file", it.value))),
            (None, Some(file)) => Err((
                line(file),
                "client_ca_file without a client_auth_type that requests certificates".to_owned(),
            )),
        }
    }

    /// Returns whether TLS 1.2 and 1.3 are enabled.
    fn versions(&self) -> Result<(bool, bool), LineFault> {
        let read = |name: &str, it: &Option<Spanned<String>>, default: u8| match it {
            None => Ok((default, 0)),
            Some(it) => match it.value.as_str() {
                "TLS12" => Ok((12, line(it))),
                "TLS13" => Ok((13, line(it))),
                "TLS10" | "TLS11" => {
                    Err((line(it), format!("{name}: TLS 1.2 is the oldest supported version")))
                }
                _ => Err((line(it), format!("{name} must be TLS12 or TLS13"))),
            },
        };
        let (least, _) = read("min_version", &self.min_version, 12)?;
        let (most, at) = read("max_version", &self.max_version, 13)?;
        if most < least {
            return Err((at, "max_version is older than min_version".to_owned()));
        }
        Ok((least <= 12, most >= 13))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HASH: &str = "$2y$10$abcdefghijklmnopqrstuu5Lo0g67CiD3M4RpN1BmBb4Crp5w7dbK";

    fn read(text: &str) -> Result<WebConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.yml");
        fs::write(&path, text).unwrap();
        fs::write(folder.path().join("broken.pem"), "nothing\n").unwrap();
        let told = |error: WebConfigError| {
            let told = error.to_string();
            told.replace(&format!("{}/", folder.path().display()), "")
        };
        WebConfig::read(&path).map_err(told)
    }

    #[test]
    fn what_asks_for_nothing_is_a_configuration() {
        let texts = [
            "",
            "# nothing yet\n",
            "---\n",
            "tls_server_config:\n",
            "tls_server_config: {}\n",
            "basic_auth_users:\n",
            "basic_auth_users: {}\n",
        ];
        for text in texts {
            let config = read(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert!(config.tls.is_none() && config.users.is_none(), "{text:?}");
        }
    }

    #[test]
    fn users_are_read_with_their_hashes() {
        let config =
            read(&format!("# ours\nbasic_auth_users:\n  prometheus: {HASH}\n  bob: '{HASH}'\n")).unwrap();
        assert!(config.users.is_some() && config.tls.is_none());
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        let both = "tls_server_config:\n  cert_file: broken.pem\n  key_file: broken.pem\n";
        let hash = format!("basic_auth_users:\n  ann: {HASH}\n  ann: {HASH}\n");
        for (text, said) in [
            ("tls_server_config:\n  cert_file: a\n  certfile: b\n", "web.yml:3: unknown field"),
            ("\nhttp_server_config:\n  http2: true\n", "web.yml:2: unknown field"),
            ("basic_auth_users:\n  ann: secret\n", "web.yml:2: basic_auth_users: ann: not a bcrypt hash"),
            ("tls_server_config:\n  cert_file: a\n", "web.yml:2: cert_file without key_file"),
            ("tls_server_config:\n  key_file: a\n", "web.yml:2: key_file without cert_file"),
            ("tls_server_config:\n  min_version: TLS12\n", "web.yml:2: tls_server_config has neither"),
            (both, "web.yml:2: broken.pem: "),
            ("tls_server_config:\n  cert_file: x.pem\n  key_file: y.pem\n", "web.yml:2: x.pem: "),
            (&format!("{both}  min_version: TLS11\n"), "web.yml:4: min_version: TLS 1.2 is the oldest"),
            (&format!("{both}  min_version: 1.3\n"), "web.yml:4: min_version must be TLS12 or TLS13"),
            (
                &format!("{both}  min_version: TLS13\n  max_version: TLS12\n"),
                "web.yml:5: max_version is older",
            ),
            (
                &format!("{both}  client_auth_type: Always\n"),
                "web.yml:4: client_auth_type must be NoClientCert",
            ),
            (&format!("{both}  client_auth_type: RequireAnyClientCert\n"), "web.yml:4: client_auth_type R"),
            (
                &format!("{both}  client_auth_type: VerifyClientCertIfGiven\n"),
                "web.yml:4: VerifyClientCertIfGiven without client_ca_file",
            ),
            (&format!("{both}  client_ca_file: broken.pem\n"), "web.yml:4: client_ca_file without"),
            (&hash, "web.yml:3: duplicate"),
            ("- a\n", "web.yml:1: "),
            ("tls_server_config: [\n", "web.yml:"),
        ] {
            let told = read(text).expect_err(text);
            assert!(told.starts_with(said), "{text:?}: {told}");
            assert!(!told.contains('\n') && !told.contains("$2y$"), "{told}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = WebConfig::read(Path::new("/no/such/web.yml")).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/web.yml: No such file"), "{error}");
    }
}
