//! Reads and shows URLs of servers.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::error::DatabaseLocationError;
use super::tls::{PostgresTls, PostgresTlsOptions, VerificationLevel};

/// Time limit of connecting to a server, if its URL sets none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which sent data may stay without an acknowledgement of the server's kernel.
const DEAD: Duration = Duration::from_secs(15);

/// Directory of a local server's sockets, for a URL without a host.
const SOCKETS: &str = "/var/run/postgresql";

/// The default port.
const USUAL: u16 = 5432;

/// Prefixes of a URL.
const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Returns the settings of a URL's connection.
pub(super) fn connect_settings(
    url: &str,
    password: Option<String>,
) -> Result<(Config, PostgresTls), DatabaseLocationError> {
    let config = config(url, password)?;
    let (_, certificates) = certificates(url)?;
    Ok((config, certificates.tls()?))
}

/// Returns a URL without its password. It is split as in [`Config`]: everything before the first `@` is
/// user and password, including `/` and `?`.
pub(super) fn without_password(url: &str) -> Result<String, DatabaseLocationError> {
    let (scheme, rest) = url.split_once("://").ok_or(DatabaseLocationError::Url)?;
    let (user, way) = match rest.split_once('@') {
        Some((credentials, way)) => (credentials.split(':').next().map(|user| format!("{user}@")), way),
        None => (None, rest),
    };
    let (way, pairs) = pairs(way);
    let others: Vec<&str> = pairs.into_iter().filter(|pair| !pair.starts_with("password=")).collect();
    let bare = with_pairs(&format!("{scheme}://{}{way}", user.unwrap_or_default()), &others);
    // An escaped name of the parameter (`p%61ssword`) cannot be removed, so it is refused.
    let is_bare = config(&bare, None)?.get_password().is_none();
    is_bare.then_some(bare).ok_or(DatabaseLocationError::Url)
}

/// Splits a URL after its credentials at its parameters.
fn pairs(way: &str) -> (&str, Vec<&str>) {
    let (way, query) = way.split_once('?').unwrap_or((way, ""));
    (way, query.split('&').filter(|pair| !pair.is_empty()).collect())
}

fn with_pairs(url: &str, pairs: &[&str]) -> String {
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{url}{mark}{}", pairs.join("&"))
}

/// Splits libpq's parameters about certificates from a URL, and returns the URL for [`Config`] and these
/// (<https://www.postgresql.org/docs/current/libpq-connect.html>). The modes have the same meaning;
/// without one, `sslrootcert` implies `verify-full`.
fn certificates(url: &str) -> Result<(String, PostgresTlsOptions), DatabaseLocationError> {
    let behind = url.find('@').map_or(0, |at| at + 1);
    let (credentials, way) = url.split_at(behind);
    let (way, pairs) = pairs(way);
    let (mut found, mut mode, mut others) = (PostgresTlsOptions::default(), None, Vec::new());
    let mut roots = None;
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = || {
            let decoded = percent_decode_str(value).decode_utf8().map_err(|_| DatabaseLocationError::Url)?;
            Ok((!decoded.is_empty()).then(|| PathBuf::from(decoded.as_ref())))
        };
        match name {
            "sslrootcert" => roots = path()?,
            "sslcert" => found.own = path()?,
            "sslkey" => found.key = path()?,
            "sslmode" => mode = Some(value),
            _ => others.push(pair),
        }
    }
    let has_roots = roots.is_some();
    // libpq's word for the system's authorities.
    found.authorities = roots.filter(|path| path.as_os_str() != "system");
    found.verification = match mode {
        Some("verify-full") => VerificationLevel::Host,
        None if has_roots => VerificationLevel::Host,
        Some(lax @ ("disable" | "prefer")) if has_roots => {
            return Err(DatabaseLocationError::Unverified(lax.to_owned()));
        }
        Some("require") if !has_roots => VerificationLevel::Nothing,
        Some("require" | "verify-ca") if found.authorities.is_some() => VerificationLevel::Authority,
        Some(weak @ ("require" | "verify-ca")) => return Err(DatabaseLocationError::Weak(weak.to_owned())),
        None | Some("disable" | "prefer") => VerificationLevel::Nothing,
        Some(other) => return Err(DatabaseLocationError::Mode(other.to_owned())),
    };
    let mode = match mode {
        Some(lax @ ("disable" | "prefer")) => Some(lax),
        None if !has_roots => None,
        _ => Some("require"),
    };
    let mode = mode.map(|mode| format!("sslmode={mode}"));
    others.extend(mode.as_deref());
    Ok((with_pairs(&format!("{credentials}{way}"), &others), found))
}

/// Returns the settings of a URL's connection.
fn config(url: &str, password: Option<String>) -> Result<Config, DatabaseLocationError> {
    let (url, _) = certificates(url)?;
    let mut config: Config = url.parse().map_err(|_| DatabaseLocationError::Url)?;
    if config.get_hosts().is_empty() {
        config.host_path(SOCKETS);
    }
    if let (None, Some(password)) = (config.get_password(), password) {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_application_name().is_none() {
        config.application_name("bannerwall");
    }
    config.keepalives_idle(DEAD).tcp_user_timeout(DEAD);
    Ok(config)
}

/// A URL without the password.
pub(super) fn named(config: &Config) -> String {
    let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = config.get_ports().get(number).or(config.get_ports().first());
        let port = port.filter(|port| **port != USUAL).map_or_else(String::new, |port| format!(":{port}"));
        match host {
            Host::Tcp(name) => format!("{name}{port}"),
            Host::Unix(path) => format!("{}{port}", path.display()),
        }
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    format!("postgresql://{user}{hosts}/{}", config.get_dbname().or(config.get_user()).unwrap_or_default())
}

pub(super) fn is_url(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// True for what is meant as a URL and is none, such as `postgres:/host`: it must not become a file's name.
pub(super) fn is_broken_url(text: &str) -> bool {
    let scheme = |scheme: &&str| text.starts_with(scheme.trim_end_matches('/'));
    SCHEMES.iter().any(scheme) || text.contains("://")
}

/// Returns a word of a command line as others may see it: without the password of a URL.
pub fn redact_password(word: &str) -> String {
    let Some(at) = SCHEMES.iter().find_map(|scheme| word.find(scheme)) else { return word.to_owned() };
    let (before, url) = word.split_at(at);
    match config(url, None) {
        Ok(config) => format!("{before}{}", named(&config)),
        Err(_) => format!("{before}postgresql://…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseLocation;

    #[test]
    fn what_a_url_says_of_certificates_is_known_or_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let junk = folder.path().join("a b.pem");
        std::fs::write(&junk, "no certificate").unwrap();
        let junk = junk.to_str().unwrap().replace(' ', "%20");
        for (query, told) in [
            ("sslmode=verify-ca", "sslmode=verify-ca does not check the host"),
            ("sslmode=require&sslrootcert=system", "sslmode=require does not check the host"),
            ("sslmode=verify_full", "sslmode=verify_full is not known here"),
            ("sslmode=allow", "sslmode=allow is not known here"),
            ("sslmode=prefer&sslrootcert=/x", "sslrootcert verifies nothing with sslmode=prefer"),
            ("sslmode=disable&sslrootcert=system", "sslrootcert verifies nothing with sslmode=disable"),
            ("sslcert=/x", "sslkey is missing"),
            ("sslkey=/x", "sslcert is missing"),
            ("sslrootcert=/not/there.pem", "sslrootcert=/not/there.pem: No such file"),
            (&format!("sslrootcert={junk}"), "a b.pem: the file has no certificate"),
            (&format!("sslcert={junk}&sslkey=/x"), "sslcert="),
        ] {
            let fault = DatabaseLocation::parse(format!("postgresql://ann:s3cret@db/net?{query}").into())
                .unwrap_err();
            let fault = fault.to_string();
            assert!(fault.contains(told) && !fault.contains("s3cret"), "{query}: {fault}");
        }
        // Not what stands in a password.
        let place =
            DatabaseLocation::parse("postgresql://ann:sslmode=verify-ca&sslcert=x@db/net".into()).unwrap();
        assert_eq!(place.word().1.as_deref(), Some(&b"sslmode=verify-ca&sslcert=x"[..]));
        let (url, _) = certificates("postgresql://ann@db/net?sslrootcert=/x&connect_timeout=3").unwrap();
        assert_eq!(url, "postgresql://ann@db/net?connect_timeout=3&sslmode=require");
    }

    #[test]
    fn sslmode_means_what_it_means_to_libpq() {
        use VerificationLevel::{Authority, Host, Nothing};
        for (query, mode, verification) in [
            ("", "", Nothing),
            ("sslmode=disable", "?sslmode=disable", Nothing),
            ("sslmode=prefer", "?sslmode=prefer", Nothing),
            ("sslmode=require", "?sslmode=require", Nothing),
            ("sslmode=require&sslrootcert=", "?sslmode=require", Nothing),
            ("sslmode=require&sslrootcert=/x", "?sslmode=require", Authority),
            ("sslmode=verify-ca&sslrootcert=/x", "?sslmode=require", Authority),
            ("sslmode=verify-full", "?sslmode=require", Host),
            ("sslmode=verify-full&sslrootcert=/x", "?sslmode=require", Host),
            ("sslrootcert=/x", "?sslmode=require", Host),
            ("sslrootcert=system", "?sslmode=require", Host),
        ] {
            let (url, found) = certificates(&format!("postgresql://ann@db/net?{query}")).unwrap();
            assert_eq!(url, format!("postgresql://ann@db/net{mode}"), "{query}");
            assert_eq!(found.verification, verification, "{query}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, told) in [
            ("postgresql://ann:s3cret@db.example/net", "postgresql://ann@db.example/net"),
            (
                "postgres://ann:s3cret@db.example:5433/net?sslmode=verify-full",
                "postgresql://ann@db.example:5433/net",
            ),
            ("postgresql:///net?host=/tmp&user=ann&password=s3cret", "postgresql://ann@/tmp/net"),
            ("postgresql://ann:s3cret@/net", "postgresql://ann@/var/run/postgresql/net"),
        ] {
            let place = DatabaseLocation::parse(url.into()).unwrap();
            assert_eq!(place.to_string(), told);
            assert!(!format!("{place:?}").contains("s3cret"), "{place:?}");
            assert_eq!(redact_password(&format!("--inventory={url}")), format!("--inventory={told}"));
        }
        let wrong = "postgresql://ann:s3cret@db:port/net?what=ever";
        assert!(!DatabaseLocation::parse(wrong.into()).unwrap_err().to_string().contains("s3cret"));
        assert_eq!(redact_password(wrong), "postgresql://…");
        assert_eq!(redact_password("-p22"), "-p22");
        assert_eq!(
            DatabaseLocation::parse("postgresql.db".into()).unwrap(),
            DatabaseLocation::File("postgresql.db".into())
        );
    }
}
