//! `scan tls` against servers of each version, key exchange, curve and kind of key that OpenSSL serves: each
//! makes a certificate or a finding.

use bannerwall_test_support::{Namespace, Running, as_root, json_lines, wait_listening};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// The first port; each server has its own.
const FIRST: u16 = 4000;

/// Keys by name: what `openssl req -newkey` takes for each.
const KEYS: &[(&str, &str)] = &[
    ("rsa", "rsa:2048"),
    ("short", "rsa:1024"),
    ("pss", "rsa-pss -pkeyopt rsa_keygen_bits:2048"),
    ("p256", "ec -pkeyopt ec_paramgen_curve:P-256"),
    ("p384", "ec -pkeyopt ec_paramgen_curve:P-384"),
    ("p521", "ec -pkeyopt ec_paramgen_curve:P-521"),
    ("koblitz", "ec -pkeyopt ec_paramgen_curve:secp256k1"),
    ("brainpool", "ec -pkeyopt ec_paramgen_curve:brainpoolP384r1"),
    ("ed25519", "ed25519"),
    ("ed448", "ed448"),
    ("dsa", "dsa:parameters"),
];

/// Each server: its key, its flags, and the version and the cipher suite that the scan is to report.
const SERVERS: &[(&str, &str, &str, &str)] = &[
    ("rsa", "-tls1_3", "TLS 1.3", ""),
    ("short", "-tls1_3", "TLS 1.3", ""),
    ("pss", "-tls1_3", "TLS 1.3", ""),
    ("p256", "-tls1_3", "TLS 1.3", ""),
    ("p384", "-tls1_3", "TLS 1.3", ""),
    ("p521", "-tls1_3", "TLS 1.3", ""),
    ("ed25519", "-tls1_3", "TLS 1.3", ""),
    ("ed448", "-tls1_3", "TLS 1.3", ""),
    ("rsa", "-tls1_3 -Verify 1", "TLS 1.3", ""),
    ("rsa", "-tls1_2 -Verify 1", "TLS 1.2", ""),
    ("rsa", "-tls1_2", "TLS 1.2", ""),
    ("short", "-tls1_2", "TLS 1.2", ""),
    ("pss", "-tls1_2", "TLS 1.2", ""),
    ("p256", "-tls1_2", "TLS 1.2", ""),
    ("p384", "-tls1_2", "TLS 1.2", ""),
    ("p521", "-tls1_2", "TLS 1.2", ""),
    ("koblitz", "-tls1_2", "TLS 1.2", ""),
    ("brainpool", "-tls1_2", "TLS 1.2", ""),
    ("ed25519", "-tls1_2", "TLS 1.2", ""),
    ("ed448", "-tls1_2", "TLS 1.2", ""),
    ("dsa", "-tls1_2 -cipher ALL", "TLS 1.2", "TLS_DHE_DSS_"),
    ("rsa", "-groups P-521", "TLS 1.2", "TLS_ECDHE_RSA_"),
    ("rsa", "-groups X448", "TLS 1.2", "TLS_ECDHE_RSA_"),
    ("rsa", "-tls1_2 -groups brainpoolP512r1", "TLS 1.2", "TLS_ECDHE_RSA_"),
    ("rsa", "-cipher AES128-SHA -tls1_2", "TLS 1.2", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("rsa", "-cipher AES256-GCM-SHA384 -tls1_2", "TLS 1.2", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("rsa", "-cipher CAMELLIA256-SHA256 -tls1_2", "TLS 1.2", "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA256"),
    ("rsa", "-cipher ECDHE-RSA-AES128-SHA -tls1_2", "TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("rsa", "-cipher ECDHE-ARIA128-GCM-SHA256 -tls1_2", "TLS 1.2", "TLS_ECDHE_RSA_WITH_ARIA_128_GCM_SHA256"),
    ("p256", "-cipher ECDHE-ECDSA-AES128-CCM8 -tls1_2", "TLS 1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"),
    ("rsa", "-cipher DHE-RSA-AES256-SHA -tls1_2", "TLS 1.2", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    ("rsa", "-cipher DHE-RSA-AES128-GCM-SHA256 -tls1_2", "TLS 1.2", "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("rsa", "-cipher NULL-MD5 -tls1_2", "TLS 1.2", "TLS_RSA_WITH_NULL_MD5"),
    ("rsa", "-cipher NULL-SHA256 -tls1_2", "TLS 1.2", "TLS_RSA_WITH_NULL_SHA256"),
    ("rsa", "-cipher ECDHE-RSA-NULL-SHA -tls1_2", "TLS 1.2", "TLS_ECDHE_RSA_WITH_NULL_SHA"),
    ("", "-cipher ADH-AES128-GCM-SHA256 -tls1_2", "TLS 1.2", "TLS_DH_anon_WITH_AES_128_GCM_SHA256"),
    ("", "-cipher AECDH-AES256-SHA -tls1_2", "TLS 1.2", "TLS_ECDH_anon_WITH_AES_256_CBC_SHA"),
    ("", "-cipher AECDH-NULL-SHA -tls1_2", "TLS 1.2", "TLS_ECDH_anon_WITH_NULL_SHA"),
    ("rsa", "-tls1_1", "TLS 1.1", ""),
    ("p256", "-tls1_1", "TLS 1.1", "TLS_ECDHE_ECDSA_"),
    ("rsa", "-tls1_1 -cipher AES256-SHA", "TLS 1.1", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("", "-tls1_1 -cipher ADH-AES128-SHA", "TLS 1.1", "TLS_DH_anon_WITH_AES_128_CBC_SHA"),
    ("rsa", "-tls1", "TLSv1", ""),
    ("p521", "-tls1", "TLSv1", "TLS_ECDHE_ECDSA_"),
    ("dsa", "-tls1 -cipher ALL", "TLSv1", "TLS_DHE_DSS_"),
    ("rsa", "-tls1 -cipher NULL-SHA", "TLSv1", "TLS_RSA_WITH_NULL_SHA"),
    ("", "-tls1 -cipher AECDH-AES128-SHA", "TLSv1", "TLS_ECDH_anon_WITH_AES_128_CBC_SHA"),
];

/// A namespace, and a folder with a certificate for each key.
struct Servers {
    folder: TempDir,
    network: Namespace,
    running: Vec<Running>,
}

impl Servers {
    fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut servers = Self { folder, network: Namespace::new(), running: Vec::new() };
        servers.openssl("dsaparam -out parameters 1024");
        for (name, key) in KEYS {
            servers.openssl(&format!(
                "req -x509 -newkey {key} -nodes -days 30 -subj /CN={name} -keyout {name}.key -out {name}.pem"
            ));
        }
        for (port, (key, flags, ..)) in (FIRST..).zip(SERVERS) {
            let mut command = servers.network.command("openssl");
            command.current_dir(servers.folder.path());
            command.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{port}")]);
            match *key {
                "" => command.arg("-nocert"),
                key => command.args(["-cert", &format!("{key}.pem"), "-key", &format!("{key}.key")]),
            };
            // Old versions, short keys and hashes that are no longer collision-resistant.
            let (words, ciphers) = flags.split_once("-cipher ").unwrap_or((flags, "DEFAULT"));
            let (ciphers, behind) = ciphers.split_once(' ').unwrap_or((ciphers, ""));
            command.args(words.split_whitespace()).args(behind.split_whitespace());
            command.args(["-cipher", &format!("{ciphers}:@SECLEVEL=0")]);
            servers.running.push(Running::start(command));
        }
        for (port, _) in (FIRST..).zip(SERVERS) {
            wait_listening(&servers.network, port);
        }
        servers
    }

    fn openssl(&self, words: &str) {
        self.network.run(&format!("env -C {} openssl {words}", self.folder.path().display()));
    }

    fn scan(&self, flags: &str) -> Vec<Value> {
        let last = FIRST + u16::try_from(SERVERS.len()).expect("they fit") - 1;
        let output = self.network.output(&format!(
            "{PROGRAM} scan tls 127.0.0.1 -p {FIRST}-{last} --rules rules/tls.toml --format json \
             --read-timeout 20s --total-timeout 60s --progress never {flags}"
        ));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout)
    }
}

#[test]
fn each_server_makes_a_certificate_or_a_finding() {
    as_root(|| {
        let servers = Servers::start();
        let events = servers.scan("");
        let mut faults = Vec::new();
        for (port, (key, flags, version, cipher)) in (FIRST..).zip(SERVERS) {
            let own = |kind: &str, field: &str| -> Vec<&Value> {
                events.iter().filter(|event| event["event_type"] == kind && event[field] == port).collect()
            };
            let told = own("tls", "dest_port");
            let [event] = told.as_slice() else {
                faults.push(format!("{key} {flags}: {told:?}"));
                continue;
            };
            let tls = &event["bannerwall"]["tls"];
            let subject = tls["certificates"][0]["subject"].as_str().unwrap_or_default();
            let alerts = own("alert", "src_port");
            let rules: Vec<&str> =
                alerts.iter().filter_map(|alert| alert["bannerwall"]["rule"].as_str()).collect();
            let is_named = match *key {
                "" => subject.is_empty() && rules.contains(&"tls-broken-cipher"),
                key => subject == format!("CN={key}") && rules.contains(&"tls-certificate-in-doubt"),
            };
            let is_old = matches!(*version, "TLS 1.1" | "TLSv1");
            let chosen = event["bannerwall"]["banner"].as_str().unwrap_or_default();
            let is_right = chosen.starts_with(&format!("{version} {cipher}"));
            if !is_named || !is_right || is_old != rules.contains(&"tls-old-server") {
                faults.push(format!("{key} {flags}: {rules:?} {event}"));
            }
        }
        assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), SERVERS.len(), faults.join("\n"));
    });
}
