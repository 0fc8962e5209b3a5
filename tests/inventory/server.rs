//! An inventory in a database of a PostgreSQL server: what several write at once, and what a guard does while
//! the server is away.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

use bannerwall_test_support::{
    Guard, Line, NO_SQLMAP, Postgres, Running, Signal, Sshd, as_root, eventually, json_lines, psql,
    ssh_servers,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// A password that the server does not ask for, and that nobody is to see.
const SECRET: &str = "s3cr3t-w0rd";

/// SSH servers on every loopback address, each of another version; their port.
fn servers() -> u16 {
    ssh_servers(|number| format!("SSH-2.0-test_{}\r\n", number % 256).into_bytes())
}

/// A database's URL with a password.
fn secret(url: &str) -> String {
    format!("{url}&password={SECRET}")
}

fn scan(url: &str, range: &str, port: u16) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["scan", "ssh", range, "-p", &port.to_string(), "--rate", "max", "-q", "--sensor", "edge"]);
    command.args(["--read-timeout", "9s", "--total-timeout", "30s", "-o", "/dev/null", "--inventory", url]);
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

fn run(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().expect("it runs")
}

#[test]
fn many_write_into_one_database_at_once_and_none_is_lost() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let port = servers();
    // Each finds an empty database.
    let scans: Vec<_> =
        (0..6).map(|_| scan(&secret(&url), "127.11.0.0/28", port).spawn().expect("it runs")).collect();
    for mut scan in scans {
        assert_eq!(scan.wait().expect("it ends").code(), Some(0));
    }
    // What a server said may be lost on its way, but not that it was there.
    let counts = "SELECT count(*), min(seen), max(seen)
                  FROM (SELECT sum(count) AS seen FROM sightings GROUP BY service) each_one";
    assert_eq!(psql(&url, counts), "16|6|6");
    assert_eq!(psql(&url, "SELECT count(*) FROM changes WHERE kind = 'new_service'"), "16");
    assert_eq!(psql(&url, "SELECT count(*), max(version) FROM schema_version"), "1|11");
    assert_eq!(psql(&url, "SELECT state, count(*) FROM runs GROUP BY 1"), "done|6");

    // The same questions, and nobody learns the password.
    let url = secret(&url);
    for words in [
        &["list", "net:127.11.0.0/28"][..],
        &["show", "127.11.0.7"],
        &["top", "version"],
        &["changes", "--since", "1h"],
        &["diff", "#1", "#6"],
        &["runs"],
        &["export", "--format", "cyclonedx"],
        &["export", "--format", "nmap-xml"],
        &["prune", "--keep", "1d"],
    ] {
        let output = run(&[&["inventory"], words, &["--inventory", &url]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        assert_eq!(output.stdout.is_empty(), words[0] == "diff", "{words:?}: each scan saw the same");
        assert!(!text(&output.stdout).contains(SECRET), "{words:?}");
        assert!(!text(&output.stderr).contains(SECRET), "{words:?}");
    }
    let list = run(&["inventory", "list", "--format", "json", "port:1", "--inventory", &url]);
    assert_eq!(json_lines(&list.stdout).len(), 0);
    assert!(!psql(&url, "SELECT about FROM runs").contains(SECRET));
    let output = run(&["inventory", "prune", "--keep", "1ms", "--inventory", &url]);
    assert!(text(&output.stdout).contains("hosts 16, services and clients 16"), "{}", text(&output.stdout));
}

#[test]
fn what_cannot_be_used_is_refused_without_its_password() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    let refused = |words: &[&str], url: &str, said: &str| {
        let output = run(&[words, &["--inventory", url]].concat());
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(said)), (Some(2), true), "{words:?}: {stderr}");
        assert!(!stderr.contains(SECRET), "{stderr}");
    };
    let list: &[&str] = &["inventory", "list"];
    refused(list, &secret(&url), "no such inventory");
    refused(list, "postgresql://ann:s3cr3t-w0rd@127.0.0.1:1/net", "postgresql://ann@127.0.0.1:1/net");
    refused(list, "postgresql://ann:s3cr3t-w0rd@host:port/net", "no URL of a PostgreSQL server");
    refused(
        &["replay", "/dev/null", "-q"],
        &format!("{}x", secret("postgresql:///none?host=/nowhere&user=a")),
        "/nowhere",
    );
    refused(
        &["replay", "/dev/null", "-q", "--inventory-max-size", "1GiB"],
        &secret(&url),
        "could be bounded",
    );
    assert_eq!(scan(&url, "127.11.1.1", servers()).status().expect("it runs").code(), Some(0));
    refused(&["inventory", "check"], &secret(&url), "the server manages its own");
    psql(&url, "UPDATE schema_version SET version = 99");
    for words in [list, &["replay", "/dev/null", "-q"], &["serve", "--listen", "127.0.0.1:0"]] {
        refused(words, &secret(&url), "version 99");
    }
    let foreign = server.database();
    psql(&foreign, "CREATE SCHEMA bannerwall; CREATE TABLE bannerwall.a (b int)");
    refused(list, &secret(&foreign), "not an inventory of bannerwall");
    refused(&["replay", "/dev/null", "-q"], &secret(&foreign), "not an inventory of bannerwall");
}

#[test]
fn a_guard_goes_on_while_its_server_is_away_and_tells_it_later() {
    as_root(|| {
        let Some(mut server) = Postgres::start() else { return };
        let (url, line) = (server.database(), Line::new());
        let _sshd = Sshd::start(&line.server, 2222);
        let flags = format!("--hook forward --enforce --sensor router --inventory {}", secret(&url));
        let mut guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        let talk = || {
            let mut stream = line.client.connect((Ipv4Addr::new(198, 51, 100, 2), 2222)).expect("it passes");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
            stream.write_all(b"SSH-2.0-probe_1.5\r\n").expect("it passes");
            assert!(stream.read(&mut [0; 64]).expect("it passes") > 0);
        };
        server.stop();
        talk();
        guard.process.wait_stderr("the guard to tell", |text| {
            text.contains("cannot write the inventory").then_some(())
        });
        talk();
        server.go_on();
        guard.process.wait_stderr("the guard to write again", |text| {
            text.contains("written again; sightings lost meanwhile: 0").then_some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        assert!(!guard.process.stderr().contains(SECRET), "{}", guard.process.stderr());
        let met = "SELECT count FROM contacts JOIN services ON services.id = service WHERE port = 2222";
        assert_eq!(psql(&url, met), "2");
        assert_eq!(psql(&url, "SELECT state, lost FROM runs"), "done|0");
        // One that is killed is known as such by the next.
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        guard.process.signal(Signal::KILL);
        drop(guard);
        let guard = Guard::start(&line.router, PROGRAM, NO_SQLMAP, &flags);
        guard
            .process
            .wait_stderr("the guard to tell", |text| text.contains("did not stop cleanly").then_some(()));
        assert_eq!(psql(&url, "SELECT state FROM runs ORDER BY id"), "done\nkilled\nrunning");
    });
}

/// What a page answers.
fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn confined_programs_come_by_tls_to_a_server_whose_certificate_they_verify() {
    let Some((mut server, authority)) = Postgres::with_tls() else { return };
    let (url, port) = (server.database(), servers());
    let by_tls = server.by_tls(&url);
    let by_tls = by_tls.replace("=require", "=verify-full");
    let scanned = scan(&by_tls, "127.12.0.0/30", port).env("SSL_CERT_FILE", &authority).output();
    let scanned = scanned.expect("it runs");
    assert_eq!(scanned.status.code(), Some(0), "{}", text(&scanned.stderr));
    assert_eq!(psql(&url, "SELECT state, count(*) FROM runs GROUP BY 1"), "done|1");
    // Nobody has signed it that the system knows.
    let scanned = scan(&by_tls, "127.12.0.0/30", port).output().expect("it runs");
    assert_eq!(scanned.status.code(), Some(2), "{}", text(&scanned.stderr));
    assert!(text(&scanned.stderr).contains("certificate"), "{}", text(&scanned.stderr));

    // A page comes back to its server, too.
    let mut command = Command::new(PROGRAM);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--inventory", &by_tls])
        .env("SSL_CERT_FILE", authority);
    let process = Running::start(command);
    let address: SocketAddr = process.wait_stderr("the page's address", |said| {
        let (_, url) = said.split_once("http://")?;
        url.split_once('/')?.0.parse().ok()
    });
    server.stop();
    server.go_on();
    let answer = eventually("the page to come back", || {
        Some(page(address, "/api/services")).filter(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    assert!(answer.contains("SSH-2.0-test_1"), "{answer}");
}

#[test]
fn a_url_names_who_signs_the_servers_certificate_and_what_is_shown_to_it() {
    let Some((mut server, authority)) = Postgres::with_tls() else { return };
    let (url, port) = (server.database(), servers());
    let by_tls = server.by_tls(&url);
    let folder = tempfile::tempdir().expect("a folder");
    let own = authority.parent().expect("it lies in a folder");
    let new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2";
    let signed =
        format!("-CA {0}/ca.pem -CAkey {0}/ca.key -addext basicConstraints=critical,CA:FALSE", own.display());
    for words in [
        format!("{new} -subj /CN=other -keyout other.key -out other.pem"),
        format!("{new} {signed} -subj /CN=postgres -keyout client.key -out client.pem"),
    ] {
        let mut command = Command::new("sh");
        let made =
            command.args(["-c", &words]).current_dir(folder.path()).output().expect("openssl is installed");
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    // Whoever comes by TLS shows a certificate.
    psql(&url, &format!("ALTER SYSTEM SET ssl_ca_file = '{}'", authority.display()));
    let rules = psql(&url, "SHOW hba_file");
    std::fs::write(rules, "local all all trust\nhostssl all all 127.0.0.1/32 cert\n").expect("it is written");
    server.stop();
    server.go_on();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let roots = format!("&sslrootcert={}", authority.display());
    let shown = format!("&sslcert={}&sslkey={}", file("client.pem"), file("client.key"));
    let by_number = by_tls.replace("localhost", "127.0.0.1");
    for (asked, code, told) in [
        (format!("{by_tls}{roots}{shown}"), 0, ""),
        (format!("{}{roots}{shown}", by_tls.replace("=require", "=verify-full")), 0, ""),
        (format!("{}{roots}{shown}", by_number.replace("=require", "=verify-ca")), 0, ""),
        (format!("{by_number}{roots}{shown}"), 0, ""),
        (format!("{by_tls}{shown}"), 0, ""),
        (format!("{}{shown}", by_tls.replace("=require", "=prefer")), 0, ""),
        (format!("{by_tls}{roots}"), 2, "certificate"),
        (format!("{by_tls}&sslrootcert={}{shown}", file("other.pem")), 2, "no trusted authority has signed"),
        (
            format!("{}{roots}{shown}", by_number.replace("=require", "=verify-full")),
            2,
            "is not for 127.0.0.1, but for",
        ),
        (format!("{}{roots}{shown}", by_number.replace("sslmode=require", "")), 2, "is not for 127.0.0.1"),
        (
            format!("{by_tls}{roots}&sslcert={}&sslkey={}", file("other.pem"), file("other.key")),
            2,
            "the server does not know the CA of the certificate",
        ),
        (
            format!("{by_tls}{roots}&sslcert={}&sslkey={}", file("client.pem"), file("other.key")),
            2,
            "sslkey=",
        ),
    ] {
        let scanned = scan(&asked, "127.12.0.0/30", port).output().expect("it runs");
        let said = text(&scanned.stderr);
        assert_eq!(scanned.status.code(), Some(code), "{asked}: {said}");
        assert!(said.contains(told), "{asked}: {said}");
    }
    assert_eq!(psql(&url, "SELECT state, count(*) FROM runs GROUP BY 1"), "done|6");
}

#[test]
fn a_servers_own_certificate_verifies_it_by_itself() {
    let Some((mut server, authority)) = Postgres::with_tls() else { return };
    let (url, port) = (server.database(), servers());
    let by_tls = server.by_tls(&url).replace("=require", "=verify-full");
    let data = authority.parent().expect("it lies in a folder").join("data");
    // As `openssl req -x509` makes them: CA:TRUE.
    let words = "openssl req -x509 -key server.key -out server.crt -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost";
    let made =
        Command::new("sh").args(["-c", words]).current_dir(&data).output().expect("openssl is installed");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let own = tempfile::tempdir().expect("a folder");
    let own = own.path().join("own.pem");
    std::fs::copy(data.join("server.crt"), &own).expect("it is copied");
    server.stop();
    server.go_on();
    let roots = format!("&sslrootcert={}", own.display());
    let other = format!("&sslrootcert={}", authority.display());
    let by_number = by_tls.replace("localhost", "127.0.0.1");
    for (asked, code, told) in [
        (format!("{by_tls}{roots}"), 0, ""),
        (format!("{}{roots}", by_number.replace("=verify-full", "=require")), 0, ""),
        (format!("{by_number}{roots}"), 2, "connect by that name, or use sslmode=verify-ca"),
        (format!("{by_tls}{other}"), 2, "name this very certificate by sslrootcert=FILE"),
    ] {
        let scanned = scan(&asked, "127.12.1.1", port).output().expect("it runs");
        let said = text(&scanned.stderr);
        assert_eq!(scanned.status.code(), Some(code), "{asked}: {said}");
        assert!(said.contains(told) && !said.contains("OtherError"), "{asked}: {said}");
    }
}

#[test]
fn roles_do_with_the_rights_that_the_reference_grants_them() {
    let Some(server) = Postgres::shared() else { return };
    let (url, port) = (server.database(), servers());
    // Its owner makes the tables.
    assert_eq!(scan(&url, "127.13.0.1", port).status().expect("it runs").code(), Some(0));
    let page = include_str!("../../docs/src/reference/database-roles.md");
    let grants = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("grants");
    psql(&url, "CREATE ROLE writers LOGIN; CREATE ROLE readers LOGIN");
    psql(&url, grants);
    let [writers, readers] =
        ["writers", "readers"].map(|role| url.replace("user=postgres", &format!("user={role}")));
    let scanned = scan(&writers, "127.13.0.0/28", port).output().expect("it runs");
    assert_eq!(scanned.status.code(), Some(0), "{}", text(&scanned.stderr));
    let list = run(&["inventory", "list", "--format", "json", "net:127.13.0.0/28", "--inventory", &readers]);
    assert_eq!((list.status.code(), json_lines(&list.stdout).len()), (Some(0), 16), "{}", text(&list.stderr));
    // Who may read may not write.
    let scanned = scan(&readers, "127.13.0.0/28", port).output().expect("it runs");
    assert_eq!(scanned.status.code(), Some(2), "{}", text(&scanned.stderr));
    assert!(text(&scanned.stderr).contains("permission denied"), "{}", text(&scanned.stderr));
}
