//! Wrong usages, each with its exit code and what the message must say: what failed, why, and what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bannerwall_test_support::{Namespace, as_root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULE: &str = "[[rule]]\nid = \"a\"\ntitle = \"A\"\nprotocol = \"ssh\"\nfrom = \"server\"\n\
                    match.software = \"x\"\naction = \"alert\"\nseverity = \"low\"\n";

/// Arguments, the exit code, and texts of the message.
type Usage = (&'static str, i32, &'static [&'static str]);

const TARGETS: &[Usage] = &[
    ("scan", 2, &["Usage: bannerwall scan [FLAGS] TARGET...", "scan ssh 192.0.2.0/24"]),
    ("scan sssh 192.0.2.1", 2, &["'sssh'", "similar subcommand exists: 'ssh'"]),
    ("scan router", 2, &["'router'", "names with a dot"]),
    ("scan 192.0.2.300", 2, &["TARGET: `192.0.2.300`", "not an IPv4 address, CIDR or range"]),
    ("scan 192.0.2.0/33", 2, &["`/33` is not a number from 0 to 32"]),
    ("scan 2001:db8::/129", 2, &["`/129` is not a number from 0 to 128"]),
    ("scan 192.0.2.9-192.0.2.1", 2, &["the range is reversed: 192.0.2.9 to 192.0.2.1"]),
    ("scan fe80::1%eth0", 2, &["addresses with a zone (`%eth0`) are not supported"]),
    ("scan http://", 2, &["`http://`", "nor a host name"]),
    ("scan ssh 192.0.2.1:99999", 2, &["`99999` is not a port from 1 to 65535"]),
    ("scan ssh no.such.name.invalid", 2, &["`no.such.name.invalid`", "no target was probed"]),
    ("scan ssh", 2, &["no targets: pass them, or a file with -i FILE"]),
    ("scan ssh -i -", 2, &["no targets: pass them"]),
    ("scan ssh -i missing", 2, &["-i missing: No such file or directory", "check the path"]),
    ("scan ssh -i wrong-targets", 2, &["-i wrong-targets, line 2", "`192.0.2.300`"]),
    ("scan ssh 192.0.2.1 --exclude 192.0.2.0/40", 2, &["--exclude: `192.0.2.0/40`", "from 0 to 32"]),
    ("scan ssh 192.0.2.1 --exclude-file missing", 2, &["--exclude-file missing", "check the path"]),
    ("scan connect 192.0.2.1", 2, &["a target has no port: pass --ports"]),
    ("scan ssh 192.0.2.1 -p 0", 2, &["--ports", "`0` is not a port from 1 to 65535"]),
    ("scan ssh 192.0.2.1 -p 80-22", 2, &["the range of ports is reversed: `80-22`"]),
    ("scan ssh 192.0.2.1 --exclude-ports 1-100", 2, &["--exclude-ports: no port is left of 22"]),
    ("scan ssh 192.0.2.1 --top-ports 5000", 2, &["--top-ports", "from 1 to 1000", "-p -"]),
    (
        "scan ssh 192.0.2.1 --top-ports 5 -p 22",
        2,
        &["'--top-ports <N>' cannot be used with '--ports <PORTS>'"],
    ),
];

const VALUES: &[Usage] = &[
    ("scan ssh 192.0.2.1 --prot 22", 2, &["'--prot'", "a similar argument exists: '--ports'"]),
    ("scan ssh 192.0.2.1 --rate 0", 2, &["--rate", "a whole number of targets a second from 1, or `max`"]),
    ("scan ssh 192.0.2.1 --connect-timeout 3", 2, &["--connect-timeout", "as in 3s or 500ms"]),
    ("scan ssh 192.0.2.1 --shard 5/4", 2, &["--shard", "as in 2/8"]),
    ("scan ssh 192.0.2.1 --threads many", 2, &["--threads", "must be a whole number"]),
    ("scan ssh 192.0.2.1 --match '('", 2, &["--match", "unclosed group"]),
    ("scan http 192.0.2.1 --match Server", 2, &["--match", "must be `Header: REGEX`"]),
    ("scan http 192.0.2.1 --path status", 2, &["--path", "a path must start with /"]),
    ("scan http 192.0.2.1 --header Foo", 2, &["--header", "must be `Name: value`"]),
    ("scan http 192.0.2.1 --method 'G ET'", 2, &["--method", "as GET or HEAD"]),
    ("scan tls 192.0.2.1 --starttls nntp", 2, &["--starttls", "smtp, ftp, pop3, imap"]),
    ("scan ssh 192.0.2.1 --format xmll", 2, &["--format", "a similar value exists: 'xml'"]),
    ("scan ssh 192.0.2.1 --fail-on grave", 2, &["--fail-on", "info, low, medium, high, critical"]),
    ("scan ssh 192.0.2.1 -q -v", 2, &["'--quiet' cannot be used with '--verbose...'"]),
    ("scan ssh 192.0.2.1 --sensor x", 2, &["required", "--inventory <FILE|URL>"]),
    ("scan ssh 192.0.2.1 --metrics localhost", 2, &["--metrics", "an address and a port"]),
    ("scan ssh 192.0.2.1 --config range.conf", 2, &["'99999'", "--ports", "The file of --config"]),
    ("rules test --banner SSH-2.0-x --source 1.2.3", 2, &["--source", "must be an address"]),
    ("rules test --flow nonsense", 2, &["--flow", "such as 192.0.2.1:22"]),
    ("rules import debian empty --since soon", 2, &["--since", "neither a year nor a day"]),
    ("inventory list net:192.0.2.0/99 --inventory net.db", 2, &["as in net:192.0.2.0/24"]),
    ("inventory list colour:red --inventory net.db", 2, &["`colour:red`: fields are product"]),
    ("inventory list seen:soon --inventory net.db", 2, &["`seen:soon`", ">7d"]),
    ("inventory changes --since soon --inventory net.db", 2, &["--since", "2026-11-20"]),
    ("inventory diff 2026-13-01 #1 --inventory net.db", 2, &["2026-13-01", "a date (2026-11-20"]),
    ("inventory show host --inventory net.db", 2, &["<HOST>", "must be an address"]),
    ("bans add 192.0.2", 2, &["<ADDRESS>", "must be an address"]),
    ("why 192.0.2", 2, &["not an address such as 192.0.2.7"]),
    ("fleet status x --database net.db", 2, &["[SCAN]", "must be a number"]),
    ("fleet status", 2, &["required", "--database <FILE|URL>"]),
    ("fleet schedule never ssh 192.0.2.1 --database net.db", 2, &["<CRONTAB>", "daily 03:30"]),
    (
        "fleet submit ssh 192.0.2.1 --database net.db -o x",
        2,
        &["--output is not available for a fleet's scan"],
    ),
    ("fleet init --database net.db", 2, &["--database net.db", "postgresql://user@host/database"]),
    ("completions tcsh", 2, &["'tcsh'", "bash, elvish, fish, powershell, zsh"]),
    ("man nothing", 2, &["no subcommand `nothing`", "--help lists them"]),
    ("frobnicate", 2, &["'frobnicate'", "Usage: bannerwall"]),
];

const FILES: &[Usage] = &[
    ("rules check missing", 2, &["cannot read missing: No such file or directory", "name a file or folder"]),
    ("rules check folder", 1, &["the folder has no *.toml file", "--> folder"]),
    ("rules check half.toml", 2, &["the rule has no `id`", "--> half.toml:1:1"]),
    ("rules check key.toml", 2, &["unknown field `softwre`", "--> key.toml:6:7", "software"]),
    ("rules check regex.toml", 2, &["unclosed character class", "--> regex.toml:6:20"]),
    ("rules check severity.toml", 2, &["`severity` must be one of", "--> severity.toml:8:12"]),
    ("rules check range.toml", 2, &["--> range.toml:7", "bounds are joined by a comma"]),
    ("rules check text.toml", 2, &["invalid basic string", "--> text.toml:1:15"]),
    ("rules import debian empty", 2, &["empty:1:0", "the file is empty or cut off"]),
    ("rules import recog pcap", 2, &["pcap:", "not a Recog database"]),
    ("replay missing", 2, &["missing: No such file or directory", "check the path"]),
    ("replay folder", 2, &["folder: is a directory"]),
    ("replay pcap", 2, &["pcap: not a pcap or pcapng file", "tcpdump -w"]),
    ("replay -", 2, &["standard input: not a pcap or pcapng file"]),
    ("replay cut.pcap", 2, &["cut.pcap: offset 24: the file is truncated"]),
    ("replay pcap -o missing/x", 2, &["missing/x: No such file or directory", "creates no folders"]),
    ("scan ssh 192.0.2.1 -o missing/x", 2, &["missing/x: No such file", "creates no folders"]),
    ("scan ssh 192.0.2.1 --output-all missing/x", 2, &["missing/x.txt: No such file", "creates no folders"]),
    ("scan ssh 192.0.2.1 --resume pcap", 2, &["--resume pcap: not a checkpoint of a scan"]),
    ("scan ssh 192.0.2.1 --rules missing", 2, &["cannot read missing", "name a file or folder"]),
    ("scan tls 192.0.2.1 --ca missing", 2, &["--ca missing: ", "check the path"]),
    ("scan tls 192.0.2.1 --ca empty", 2, &["--ca empty: the file has no certificate"]),
    (
        "scan ssh 192.0.2.1 --inventory postgres:/oops",
        2,
        &["--inventory", "as in postgresql://user@host/database"],
    ),
    ("scan ssh 192.0.2.1 --inventory postgresql://127.0.0.1:1/db", 2, &["Connection refused", "server runs"]),
    ("inventory list --inventory missing", 2, &["missing: no such inventory", "--inventory"]),
    ("inventory list --inventory pcap", 2, &["pcap: file is not a database", "pass an inventory"]),
    ("inventory list --inventory folder", 2, &["folder: ", "pass a file"]),
    ("inventory import empty --inventory net.db", 2, &["empty:1: not nmap's XML", "pass --from"]),
    ("inventory show 192.0.2.77 --inventory net.db", 2, &["192.0.2.77 was never seen", "inventory list"]),
    ("tunnel public missing", 2, &["cannot read missing: No such file or directory", "check the path"]),
    ("tunnel keygen pcap", 2, &["cannot write pcap: File exists", "choose another name"]),
];

const GUARDS: &[Usage] = &[
    ("guard", 2, &["no rules: none of /etc/bannerwall/rules", "--rules PATH"]),
    ("guard --queue 5:2", 2, &["--queue", "A not above B"]),
    ("guard --hook prerouting", 2, &["--hook", "use input, output or forward"]),
    ("guard --ports 22", 2, &["required", "--hook <CHAINS>"]),
    ("guard --enforce-only 10%", 2, &["required", "--enforce"]),
    ("guard --enforce --enforce-only 200%", 2, &["use 1% to 100%"]),
    ("guard --on-anomaly odd=drop", 2, &["there is no anomaly `odd`", "classes are packet"]),
    ("guard --mark 31", 2, &["--mark", "31 is not in 0..=30"]),
    ("guard --bypass eth0", 2, &["--bypass", "use tc:INTERFACE,INTERFACE"]),
    ("guard --rules rule.toml --bypass tc:no0,no1", 2, &["--bypass", "no0, which does not exist"]),
    ("guard --ban-exempt 192.0.2", 2, &["--ban-exempt", "as in 192.0.2.0/24"]),
    ("guard --keep 5 --inventory net.db", 2, &["--keep", "as in 90d or 12h"]),
    ("guard --notify ftp://x --inventory net.db", 2, &["--notify", "http:// or https://"]),
    ("guard --user no-such-user", 2, &["--user", "no such user"]),
    ("guard --serve", 2, &["required", "--inventory <FILE|URL>"]),
    (
        "guard --rules rule.toml --inventory net.db --serve 0.0.0.0:1",
        2,
        &["pass --serve-token-file, or --serve-web-config"],
    ),
    (
        "guard --rules rule.toml --metrics 192.0.2.9:9464",
        2,
        &["192.0.2.9:9464", "an address of this machine"],
    ),
    ("guard --rules rule.toml --metrics 127.0.0.1:9999", 2, &["127.0.0.1:9999", "choose another port"]),
    ("guard --rules rule.toml --events missing/x", 2, &["missing/x: No such file", "creates no folders"]),
    ("guard --config missing", 2, &["cannot read missing: No such file or directory", "check the path"]),
    ("guard --config key.conf", 2, &["key.conf: `quue` in [guard]: no such flag", "guard --help"]),
    ("guard --config table.conf", 2, &["table.conf: `guardd` is not a subcommand", "as in [guard]"]),
    ("guard --config text.conf", 2, &["text.conf: ", "line 1", "expected `]`"]),
    ("reload", 2, &["no guard listens at /run/bannerwall/guard-0-", "start one with `bannerwall guard`"]),
    ("status --control missing", 2, &["no guard listens at missing", "--queue or --control"]),
    ("serve --inventory missing", 2, &["missing: no such inventory"]),
    (
        "serve --inventory net.db --listen 192.0.2.1:80",
        2,
        &["--listen 192.0.2.1:80", "pass --token-file, or --web-config"],
    ),
    ("serve --inventory net.db --scan-allow 192.0.2", 2, &["--scan-allow", "as in 192.0.2.0/24"]),
    ("serve --inventory net.db --listen 127.0.0.1:9999", 2, &["127.0.0.1:9999", "choose another port"]),
    ("tunnel --device b0", 2, &["required", "--local <ADDR:PORT>", "--peer <ADDR:PORT>"]),
    ("tunnel --local 1 --peer 192.0.2.1:1 --device b0", 2, &["--local", "as in 192.0.2.7:7777"]),
];

/// Usages of a user without rights.
const OF_NOBODY: &[Usage] = &[
    ("guard --rules rule.toml", 3, &["queue 0", "CAP_NET_ADMIN", "run as root"]),
    ("hook up --chains input", 3, &["CAP_NET_ADMIN", "run as root"]),
    ("rules check secret.toml", 2, &["cannot read secret.toml: Permission denied", "this user may read"]),
    ("replay secret.toml", 2, &["secret.toml: Permission denied", "run it as root"]),
    ("scan ssh -i secret.toml", 2, &["-i secret.toml: Permission denied", "run it as root"]),
    ("guard --config secret.toml", 2, &["cannot read secret.toml: Permission denied", "run it as root"]),
    (
        "inventory list --inventory secret.toml",
        2,
        &["secret.toml: unable to open", "that this user may read"],
    ),
];

/// Writes the files that the usages name.
fn write_files(folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("the folder is ours");
    write("empty", "");
    write("pcap", "this is no capture");
    write("wrong-targets", "192.0.2.1\n192.0.2.300\n");
    write("rule.toml", RULE);
    write("half.toml", "[[rule]]\n");
    write("key.toml", &RULE.replace("software", "softwre"));
    write("regex.toml", &RULE.replace("\"x\"", "\"([\""));
    write("severity.toml", &RULE.replace("\"low\"", "\"grave\""));
    write(
        "range.toml",
        &RULE.replace("software = \"x\"", "software = \"^x(?<version>.*)\"\nversion = \"<9.6 and >8\""),
    );
    write("text.toml", "id = \"unclosed\n");
    write("key.conf", "[guard]\nquue = \"0\"\n");
    write("table.conf", "[guardd]\n");
    write("text.conf", "[guard\n");
    write("range.conf", "[scan.ssh]\nports = \"99999\"\n");
    write("secret.toml", RULE);
    let cut = [
        &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0][..],
        b"AB",
    ];
    fs::write(folder.join("cut.pcap"), cut.concat()).expect("the folder is ours");
    fs::create_dir(folder.join("folder")).expect("the folder is ours");
    fs::set_permissions(folder.join("secret.toml"), fs::Permissions::from_mode(0o600)).expect("ours");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// Splits at spaces, except within single quotes.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

fn run(mut command: Command, folder: &Path) -> Output {
    command.current_dir(folder).stdin(Stdio::null()).env_remove("BANNERWALL_INVENTORY");
    command.env_remove("BANNERWALL_DATABASE").output().expect("the program starts")
}

/// Returns what is wrong with the reaction to a usage, if anything is.
fn fault(output: &Output, (line, code, texts): &Usage) -> Option<String> {
    let told = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let missing: Vec<_> = texts.iter().filter(|text| !told.contains(**text)).collect();
    let is_raw = ["os error", "Err(", "Error {", "panicked", "Some("].iter().any(|text| told.contains(text));
    let is_right = missing.is_empty() && !is_raw && output.status.code() == Some(*code);
    (!is_right).then(|| format!("`{line}`: {:?}, lacks {missing:?}:\n{told}", output.status.code()))
}

#[test]
fn every_wrong_usage_says_what_failed_why_and_what_to_do() {
    as_root(|| {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
        let folder = folder.path();
        write_files(folder);
        let _taken = namespace.listen((std::net::Ipv4Addr::LOCALHOST, 9999));
        let mut first = namespace.command(PROGRAM);
        first.args(["scan", "connect", "127.0.0.1", "-p", "9999", "--inventory", "net.db"]);
        assert!(run(first, folder).status.success(), "an inventory for the usages");
        let mut faults = Vec::new();
        for usage in [TARGETS, VALUES, FILES, GUARDS].concat() {
            let mut command = namespace.command("timeout");
            command.arg("60").arg(PROGRAM).args(words(usage.0));
            faults.extend(fault(&run(command, folder), &usage));
        }
        for usage in OF_NOBODY {
            let mut command = namespace.command_as_nobody(PROGRAM, folder, "-all");
            command.args(words(usage.0));
            faults.extend(fault(&run(command, folder), usage));
        }
        assert!(faults.is_empty(), "{} of the usages:\n{}", faults.len(), faults.join("\n"));
    });
}
