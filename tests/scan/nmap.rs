//! The formats that nmap has, as those programs read them that read nmap's.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use bannerwall_test_support::{Apache, Dropbear, Namespace, Nginx, PATIENT, Sshd, as_root};

/// Ports, states and products of each host by python-nmap, and its counts of hosts.
const PYTHON_NMAP: &str = "
import nmap, sys
scanner = nmap.PortScanner()
scanner.analyse_nmap_xml_scan(open(sys.argv[1]).read())
for host in sorted(scanner.all_hosts()):
    for port, facts in sorted(scanner[host]['tcp'].items()):
        print(host, port, facts['state'], facts['name'], facts['product'], facts['version'], facts['cpe'])
print('hosts', scanner.scanstats()['uphosts'], scanner.scanstats()['totalhosts'])
";

fn scan(network: &Namespace, arguments: &str, file: &Path) {
    let mut command = network.command(env!("CARGO_BIN_EXE_bannerwall"));
    command.arg("scan").args(arguments.split_whitespace()).arg("-o").arg(file);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn by_python_nmap(file: &Path) -> String {
    said(Command::new("/usr/bin/python3").args(["-c", PYTHON_NMAP]).arg(file))
}

#[test]
fn readers_of_nmaps_xml_see_every_port_of_every_host() {
    as_root(|| {
        let network = Namespace::new();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("scan.xml");
        let _servers = [8031, 8032, 8034].map(|port| Nginx::start(&network, port, ""));
        scan(&network, "http 127.0.0.1 127.0.0.2 -p 8031-8034 --format xml --seed 1", &file);
        said(Command::new("xmllint").args(["--noout", "--dtdvalid", "/usr/share/nmap/nmap.dtd"]).arg(&file));
        let version = String::from_utf8(network.output("/usr/sbin/nginx -v").stderr).expect("text");
        let version = version.trim().rsplit('/').next().unwrap_or_default();
        let mut expected = String::new();
        for host in [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)] {
            for port in 8031..=8034 {
                expected += &match port {
                    8033 => format!("{host} {port} closed    \n"),
                    _ => format!(
                        "{host} {port} open http nginx {version} cpe:/a:igor_sysoev:nginx:{version}\n"
                    ),
                };
            }
        }
        assert_eq!(by_python_nmap(&file), expected + "hosts 2 2\n");
        // (ndiff 7.93 stops at ports with two scripts, in nmap's own files, too.)
        let file = folder.path().join("connect.xml");
        scan(&network, "connect 127.0.0.1 127.0.0.2 -p 8031-8034 --format xml", &file);
        let difference = Command::new("ndiff").args([&file, &file]).output().expect("ndiff starts");
        assert_eq!(difference.status.code(), Some(0), "{difference:?}");
    });
}

#[test]
fn ports_that_are_left_out_leave_a_host_whole() {
    as_root(|| {
        let network = Namespace::new();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("scan.xml");
        let _servers = [8035, 8036].map(|port| Sshd::start(&network, port));
        let flags = format!("--open --format xml {PATIENT}");
        scan(&network, &format!("ssh 127.0.0.1-127.0.0.3 -p 8030-8040 {flags}"), &file);
        said(Command::new("xmllint").args(["--noout", "--dtdvalid", "/usr/share/nmap/nmap.dtd"]).arg(&file));
        let read = by_python_nmap(&file);
        assert_eq!(read.lines().count(), 7, "{read}");
        assert!(read.ends_with("hosts 3 3\n"), "{read}");
        // As `nmap -sV` tells it of the same server.
        let nmap = said(network.command("nmap").args("-sV -oX - -p 8035 127.0.0.1".split(' ')));
        let value = |name: &str| {
            let (_, rest) = nmap.split_once(&format!(" {name}=\"")).expect("nmap names it");
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let service = nmap.split_once("<service").map(|(_, rest)| rest.to_owned()).expect("a service");
        let cpe = service.split("<cpe>").nth(1).and_then(|rest| rest.split('<').next()).expect("a CPE");
        let expected = format!("127.0.0.1 8035 open ssh {} {} {cpe}", value("product"), {
            let (_, rest) = service.split_once(" version=\"").expect("a version");
            rest.split('"').next().unwrap_or_default().to_owned()
        });
        assert_eq!(read.lines().next(), Some(expected.as_str()));
    });
}

#[test]
fn servers_are_named_by_what_they_say_alone_as_nmap_names_them() {
    as_root(|| {
        let network = Namespace::new();
        let folder = tempfile::tempdir().expect("a folder");
        let _ssh = (Sshd::start(&network, 8041), Dropbear::start(&network, 8042));
        let _http = (Nginx::start(&network, 8043, ""), Apache::start(&network, 8044));
        let nmap = folder.path().join("nmap.xml");
        said(network.command("nmap").args("-sV -p 8041-8044 127.0.0.1 -oX".split(' ')).arg(&nmap));
        let theirs = by_python_nmap(&nmap);
        let mut ours = String::new();
        for (mode, ports) in [("ssh", "8041,8042"), ("http", "8043,8044")] {
            let file = folder.path().join(mode);
            scan(&network, &format!("{mode} 127.0.0.1 -p {ports} --format xml {PATIENT}"), &file);
            ours += by_python_nmap(&file).split("hosts").next().unwrap_or_default();
        }
        assert_eq!(ours.lines().count(), 4, "{ours}");
        // Of several CPEs python-nmap keeps the last; nmap's of SSH is that of the system.
        let nmap = std::fs::read_to_string(&nmap).expect("nmap wrote it");
        let without_cpe = |line: &str| line.rsplit_once(' ').map(|(line, _)| line.to_owned());
        for ((product, line), theirs) in
            ["OpenSSH", "Dropbear", "nginx", "Apache"].iter().zip(ours.lines()).zip(theirs.lines())
        {
            let cpe = line.rsplit(' ').next().unwrap_or_default();
            assert!(line.contains(product) && cpe.starts_with("cpe:/a:"), "{line}");
            assert_eq!(without_cpe(line), without_cpe(theirs));
            assert!(nmap.contains(&format!("<cpe>{cpe}</cpe>")), "{line}: {nmap}");
        }
    });
}

#[test]
fn grepable_output_begins_as_nmaps_does() {
    as_root(|| {
        let network = Namespace::new();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("scan.gnmap");
        let _nginx = Nginx::start(&network, 8037, "");
        scan(&network, "http 127.0.0.1 -p 8037 --format grepable", &file);
        let text = std::fs::read_to_string(&file).expect("the scan wrote it");
        let mut lines = text.lines();
        assert!(
            lines.next().is_some_and(|line| line.starts_with("# Nmap ") && line.contains(" as: ")),
            "{text}"
        );
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with("Host: 127.0.0.1 ()\tPorts: 8037/open/tcp//http//nginx 1."), "{line}");
    });
}
