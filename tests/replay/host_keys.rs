//! Host keys of SSH servers: that a scan tells those that OpenSSH tells, and that another one is a change.

use std::path::{Path, PathBuf};
use std::process::Command;

use bannerwall_test_support::{Namespace, Postgres, Running, as_root, json_lines, serve_by};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const PORT: u16 = 2222;

/// A namespace with room for keys.
struct Place {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        // sshd's unprivileged half lives in this empty folder; a boot script makes it elsewhere.
        std::fs::create_dir_all("/run/sshd").expect("/run is writable for root");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), "").expect("the folder is ours");
        Self { namespace: Namespace::new(), folder }
    }

    /// A new key of a type, as `ssh-keygen` takes them.
    fn key(&self, name: &str, kind: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        let (kind, bits) = kind.split_once('-').map_or((kind, None), |(kind, bits)| (kind, Some(bits)));
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", kind, "-N", ""]).args(bits.iter().flat_map(|bits| ["-b", *bits]));
        assert!(command.arg("-f").arg(&file).status().expect("ssh-keygen runs").success());
        file
    }

    fn sshd(&self, keys: &[&Path], options: &[&str]) -> Running {
        let mut command = self.namespace.command("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f", "/dev/null", "-p", &PORT.to_string()]);
        keys.iter().for_each(|key| {
            command.arg("-h").arg(key);
        });
        let usual = ["PidFile none", "UsePAM no", "StrictModes no"];
        usual.iter().chain(options).for_each(|option| {
            command.args(["-o", option]);
        });
        serve_by(&self.namespace, PORT, command)
    }

    fn dropbear(&self, kind: &str) -> (Running, PathBuf) {
        let file = self.folder.path().join(format!("dropbear-{kind}"));
        let mut make = Command::new("dropbearkey");
        assert!(make.args(["-t", kind, "-f"]).arg(&file).output().expect("it runs").status.success());
        let mut command = self.namespace.command("/usr/sbin/dropbear");
        command.args(["-F", "-E", "-P"]).arg(self.folder.path().join("pid"));
        command.args(["-p", &PORT.to_string(), "-r"]).arg(&file);
        (serve_by(&self.namespace, PORT, command), file)
    }

    /// What a scan tells.
    fn scan(&self, more: &[&str]) -> Vec<Value> {
        json_lines(&self.output(&[&["--format", "json"], more].concat()))
    }

    fn output(&self, more: &[&str]) -> Vec<u8> {
        let mut command = self.namespace.command(PROGRAM);
        command.args(["scan", "ssh", "127.0.0.1", "-q", "-p", &PORT.to_string(), "--host-key"]).args(more);
        command.args(["--read-timeout", "20s", "--total-timeout", "40s"]);
        command.arg("--rules").arg(self.folder.path().join("rules.toml"));
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The key of the only server.
    fn told(&self) -> Value {
        let events = self.scan(&[]);
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert!(event["ssh"]["server"]["hassh"]["hash"].is_string(), "{event}");
        event["bannerwall"]["host_key"].clone()
    }
}

/// The fingerprint of a key in a file, as OpenSSH tells it.
fn fingerprint(file: &Path) -> String {
    let output = Command::new("ssh-keygen").arg("-lf").arg(file).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split(' ').nth(1).expect("bits and fingerprint").to_owned()
}

#[test]
fn the_key_is_the_one_that_openssh_tells_whatever_its_type() {
    as_root(|| {
        let place = Place::new();
        for (kind, algorithm, signature, only) in [
            ("ed25519", "ssh-ed25519", "good", ""),
            ("ecdsa-256", "ecdsa-sha2-nistp256", "good", ""),
            ("ecdsa-384", "ecdsa-sha2-nistp384", "good", ""),
            ("ecdsa-521", "ecdsa-sha2-nistp521", "untried", ""),
            ("rsa-2048", "ssh-rsa", "good", ""),
            ("rsa-3072", "ssh-rsa", "good", "HostKeyAlgorithms rsa-sha2-256"),
            ("rsa-1024", "ssh-rsa", "good", "HostKeyAlgorithms ssh-rsa"),
        ] {
            let key = place.key(kind, kind);
            let options: Vec<&str> =
                ["RequiredRSASize 1024", only].into_iter().filter(|it| !it.is_empty()).collect();
            let _sshd = place.sshd(&[&key], &options);
            let told = place.told();
            let is = |name: &str| told[name].as_str().unwrap_or_default();
            assert_eq!(
                (is("algorithm"), is("fingerprint"), is("signature")),
                (algorithm, fingerprint(&key).as_str(), signature),
                "{kind} {only}"
            );
        }
        // As ssh-keyscan sees it.
        let key = place.key("seen", "ed25519");
        let _sshd = place.sshd(&[&key], &[]);
        let mut keyscan = place.namespace.command("ssh-keyscan");
        keyscan.args(["-T", "20", "-t", "ed25519", "-p", &PORT.to_string(), "127.0.0.1"]);
        let seen = place.folder.path().join("keyscan");
        std::fs::write(&seen, keyscan.output().expect("it runs").stdout).expect("the folder is ours");
        assert_eq!(place.told()["fingerprint"], fingerprint(&seen));
    });
}

#[test]
fn dropbear_and_servers_with_one_method_only_show_their_keys() {
    as_root(|| {
        let place = Place::new();
        for kind in ["ed25519", "ecdsa", "rsa"] {
            let (_dropbear, file) = place.dropbear(kind);
            let output =
                Command::new("dropbearkey").arg("-y").arg("-f").arg(&file).output().expect("it runs");
            let public = place.folder.path().join("public");
            std::fs::write(&public, output.stdout).expect("the folder is ours");
            let told = place.told();
            let line = String::from_utf8(std::fs::read(&public).expect("written")).expect("text");
            let line = line.lines().find(|line| line.contains("-sha2-") || line.starts_with("ssh-"));
            std::fs::write(&public, line.expect("a public key")).expect("the folder is ours");
            assert_eq!(told["fingerprint"], fingerprint(&public), "{kind}");
            assert_eq!(told["signature"], "good", "{kind}");
        }
        let key = place.key("key", "ed25519");
        for method in [
            "curve25519-sha256",
            "curve25519-sha256@libssh.org",
            "ecdh-sha2-nistp256",
            "ecdh-sha2-nistp384",
            "diffie-hellman-group14-sha256",
            "diffie-hellman-group14-sha1",
            "diffie-hellman-group1-sha1",
        ] {
            let _sshd = place.sshd(&[&key], &[&format!("KexAlgorithms {method}")]);
            let told = place.told();
            assert_eq!(told["fingerprint"], fingerprint(&key), "{method}");
            assert_eq!(told["signature"], "good", "{method}");
        }
        // Nothing in common: the identification is told all the same.
        let _sshd = place.sshd(&[&key], &["KexAlgorithms ecdh-sha2-nistp521"]);
        assert_eq!(place.told(), Value::Null);
    });
}

#[test]
fn another_key_at_the_same_place_is_a_change_wherever_the_inventory_is() {
    as_root(|| {
        let place = Place::new();
        let file = place.folder.path().join("net.db").display().to_string();
        let keys = ["one", "two"].map(|name| place.key(name, "ed25519"));
        let other = place.key("rsa", "rsa-2048");
        let known = keys.each_ref().map(|key| format!("{} ssh-ed25519", fingerprint(key)));
        for inventory in [Some(file), Postgres::shared().map(Postgres::database)].into_iter().flatten() {
            let changes = |key: &Path| -> Vec<Value> {
                let _sshd = place.sshd(&[key], &[]);
                let events = place.scan(&["--change-events", "--inventory", &inventory]);
                let changes = events.into_iter().filter(|event| event["event_type"] == "change");
                changes.map(|mut event| event["bannerwall"]["change"].take()).collect()
            };
            let kinds = |changes: &[Value]| -> Vec<String> {
                changes.iter().map(|it| it["kind"].as_str().expect("a kind").to_owned()).collect()
            };
            assert_eq!(kinds(&changes(&keys[0])), ["new_host", "new_service"]);
            assert!(changes(&keys[0]).is_empty());
            let told = changes(&keys[1]);
            assert_eq!(kinds(&told), ["host_key_changed"]);
            assert_eq!(told[0]["old"], known[0]);
            assert_eq!(told[0]["new"], known[1]);
            // Of another type it is another key, and the one before is remembered.
            assert_eq!(kinds(&changes(&other)), ["new_host_key"]);
            assert!(changes(&keys[1]).is_empty());

            let ask = |words: &[&str]| -> String {
                let output = Command::new(PROGRAM)
                    .arg("inventory")
                    .args(words)
                    .args(["--inventory", &inventory])
                    .output();
                String::from_utf8(output.expect("it runs").stdout).expect("text")
            };
            let of = |key: &Path| format!("hostkey:{}", fingerprint(key));
            assert_eq!(ask(&["list", &of(&keys[1])]).lines().count(), 1);
            assert_eq!(ask(&["list", &format!("{} ssh-ed25519", of(&keys[1]))]).lines().count(), 1);
            assert_eq!(ask(&["list", &of(&keys[0])]), "");
            assert_eq!(ask(&["list", &format!("!{}", of(&keys[0]))]).lines().count(), 1);
            assert_eq!(ask(&["top", "hostkey"]).matches(&known[1]).count(), 1);
            let host = ask(&["show", "127.0.0.1"]);
            assert!(host.contains(&format!("host key changed  {} -> {}", known[0], known[1])), "{host}");
        }
        let text = |format: &str| {
            let _sshd = place.sshd(&[&keys[0]], &[]);
            String::from_utf8(place.output(&["--format", format])).expect("text")
        };
        assert!(text("text").contains(&format!("host key {}\n", known[0])), "{}", text("text"));
        assert!(text("csv").trim_end().ends_with(&format!(",{},", known[0])), "{}", text("csv"));
        assert!(text("xml").contains(&format!("<elem key=\"fingerprint\">{}</elem>", fingerprint(&keys[0]))));
    });
}
