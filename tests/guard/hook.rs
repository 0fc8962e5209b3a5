//! `bannerwall hook` on the real kernel: what the commands put up and take away, and that packets
//! run through the chains as the hook's documentation says.

use std::process::Output;

use bannerwall_test_support::{Guard, NO_SQLMAP, Namespace, as_root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const VARIANTS: [&str; 2] = ["legacy", "nft"];

fn hook(namespace: &Namespace, words: &str) -> Output {
    let words = words.split_whitespace();
    namespace.command(PROGRAM).arg("hook").args(words).output().expect("the program starts")
}

/// Runs a hook command that must succeed; gives stdout and stderr.
fn hook_done(namespace: &Namespace, words: &str) -> (String, String) {
    let output = hook(namespace, words);
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "hook {words}: {stdout}{stderr}");
    (stdout, stderr)
}

/// Every rule of both families' tables.
fn rules(namespace: &Namespace, variant: &str) -> String {
    let table = |program: &str| namespace.run(&format!("{program}-{variant} -w -t mangle -S"));
    table("iptables") + &table("ip6tables")
}

#[test]
fn printed_commands_make_the_very_hook_that_up_makes() {
    as_root(|| {
        for variant in VARIANTS {
            let flags = format!("--iptables {variant} --ports 22,80,8000-8010 --queue 2:5 --mark 4");
            let (printed, up) = (Namespace::new(), Namespace::new());
            let (commands, _) = hook_done(&printed, &format!("print {flags}"));
            let shell = printed.command("sh").args(["-e", "-c", &commands]).output().expect("sh");
            assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
            hook_done(&up, &format!("up {flags}"));
            assert_eq!(rules(&printed, variant), rules(&up, variant));
            assert!(rules(&up, variant).contains("--queue-balance 2:5 --queue-bypass"));
            assert_eq!(hook(&printed, "status").status.code(), Some(5), "whole, and nobody listens");
        }
    });
}

#[test]
fn print_needs_no_privilege() {
    let output = std::process::Command::new(PROGRAM)
        .args(["hook", "print", "--chains", "forward", "--on-failure", "closed"])
        .env("PATH", "")
        .output()
        .expect("the program starts");
    let commands = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(commands.contains("iptables -w -t mangle -A FORWARD -p tcp -j BANNERWALL\n"), "{commands}");
    assert!(commands.contains("ip6tables -w -t mangle -A FORWARD -p tcp -j BANNERWALL\n"));
    assert!(!commands.contains("INPUT") && !commands.contains("bypass"), "{commands}");
}

#[test]
fn up_is_idempotent_and_follows_changed_flags() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            let up = |flags: &str| hook_done(&namespace, &format!("up --iptables {variant} {flags}")).1;
            assert_eq!(up(""), "hook is up\n");
            let first = rules(&namespace, variant);
            assert_eq!(up(""), "hook was up already, without changes\n");
            assert_eq!(rules(&namespace, variant), first);
            let many = "--ports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 --chains input --on-failure closed";
            assert!(up(many).contains("replaces the previous hook"));
            let fresh = Namespace::new();
            hook_done(&fresh, &format!("up --iptables {variant} {many}"));
            assert_eq!(rules(&namespace, variant), rules(&fresh, variant));
            up("");
            assert_eq!(rules(&namespace, variant), first);
        }
    });
}

#[test]
fn down_removes_all_of_ours_and_nothing_of_others() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            for program in ["iptables", "ip6tables"] {
                let add = |rule: &str| namespace.run(&format!("{program}-{variant} -w -t mangle {rule}"));
                add("-N BANNERWALLX");
                add("-A INPUT -p tcp --dport 22 -j BANNERWALLX");
                add("-A FORWARD -p tcp -j MARK --set-xmark 0x1/0x1");
            }
            let before = rules(&namespace, variant);
            hook_done(&namespace, &format!("up --iptables {variant}"));
            assert_ne!(rules(&namespace, variant), before);
            assert_eq!(hook_done(&namespace, "down").1, "hook is down\n");
            assert_eq!(rules(&namespace, variant), before);
            assert_eq!(hook_done(&namespace, "down").1, "there was no hook\n");
        }
    });
}

#[test]
fn down_finds_hooks_of_both_variants_and_of_half_finished_work() {
    as_root(|| {
        let namespace = Namespace::new();
        hook_done(&namespace, "up --iptables legacy");
        hook_done(&namespace, "up --iptables nft --chains forward");
        namespace.run("iptables-nft -w -t mangle -A INPUT -p tcp -j BANNERWALL");
        namespace.run("ip6tables-legacy -w -t mangle -F BANNERWALL");
        hook_done(&namespace, "down");
        for variant in VARIANTS {
            assert!(!rules(&namespace, variant).contains("BANNERWALL"));
        }
    });
}

#[test]
fn down_names_a_foreign_rule_that_leads_to_our_chain() {
    as_root(|| {
        let namespace = Namespace::new();
        hook_done(&namespace, "up");
        namespace.run("iptables -w -t mangle -A PREROUTING -s 192.0.2.7/32 -j BANNERWALL");
        let output = hook(&namespace, "down");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("-A PREROUTING -s 192.0.2.7/32 -j BANNERWALL"), "{stderr}");
    });
}

#[test]
fn status_tells_absent_complete_and_damaged_apart() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            let status = || {
                let output = hook(&namespace, &format!("status --iptables {variant}"));
                (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
            };
            let (code, text) = status();
            assert_eq!(code, Some(4), "{text}");
            assert_eq!(text.matches("no hook").count(), 2, "{text}");
            hook_done(&namespace, &format!("up --iptables {variant} --ports 22 --queue 1:2"));
            let (code, text) = status();
            assert_eq!(code, Some(5), "{text}");
            for queue in [1, 2] {
                assert!(text.contains(&format!("queue {queue}: no guard listens: its packets pass")));
            }
            let guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "--queue 1:2");
            let (code, text) = status();
            assert_eq!(code, Some(0), "{text}");
            assert!(
                text.contains("chains input,output,forward, ports 22, queue 1:2, on failure open"),
                "{text}"
            );
            namespace.run(&format!("ip6tables-{variant} -w -t mangle -D BANNERWALL 2"));
            let (code, text) = status();
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("IPv6") && text.contains("damaged"), "{text}");
            hook_done(&namespace, &format!("up --iptables {variant} --ports 22 --queue 1:2"));
            assert_eq!(status().0, Some(0), "up mends the damage");
            drop(guard);
            hook_done(&namespace, &format!("up --iptables {variant} --queue 7 --on-failure closed"));
            let (code, text) = status();
            assert_eq!(code, Some(5), "{text}");
            assert!(text.contains("queue 7: no guard listens: its packets are dropped"), "{text}");
        }
    });
}

#[test]
fn status_tells_doubled_jumps_and_rules_on_their_wrong_side() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            hook_done(&namespace, &format!("up --iptables {variant} --chains forward"));
            let _guard = Guard::start(&namespace, PROGRAM, NO_SQLMAP, "");
            let status = || {
                let output = hook(&namespace, &format!("status --iptables {variant}"));
                (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
            };
            let iptables = |rule: &str| namespace.run(&format!("iptables-{variant} -w -t mangle {rule}"));
            assert_eq!(status().0, Some(0));
            iptables("-A FORWARD -p udp -j ACCEPT");
            assert_eq!(status().0, Some(0), "TCP never meets that rule");
            let clamp = "FORWARD -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000";
            iptables(&format!("-A {clamp}"));
            let (code, text) = status();
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("fault: rules after the jump in FORWARD"), "{text}");
            assert!(text.contains("-j TCPMSS --set-mss 1000\n"), "{text}");
            iptables(&format!("-D {clamp}"));
            assert_eq!(status().0, Some(0));
            iptables("-A FORWARD -p tcp -j BANNERWALL");
            let (code, text) = status();
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("fault: FORWARD has 2 jumps to it"), "{text}");
            iptables("-D FORWARD -p tcp -j BANNERWALL");
            iptables("-D FORWARD -p tcp -j BANNERWALL");
            iptables("-A FORWARD -p tcp --dport 80 -j RETURN");
            iptables("-A FORWARD -p tcp -j BANNERWALL");
            let (code, text) = status();
            assert_eq!(code, Some(1), "{text}");
            let skipped = "fault: rules before the jump in FORWARD let packets pass uninspected: -p tcp -m tcp --dport 80 -j RETURN\n";
            assert!(text.contains(skipped), "{text}");
            hook_done(&namespace, &format!("up --iptables {variant} --chains forward"));
            assert_eq!(status().0, Some(0), "the jump stands before that rule: {}", status().1);
        }
    });
}

#[test]
fn without_the_capability_the_exit_code_is_3_and_the_message_names_it() {
    as_root(|| {
        for variant in VARIANTS {
            let namespace = Namespace::new();
            let output = namespace
                .command_without_net_admin(PROGRAM)
                .args(["hook", "up", "--iptables", variant])
                .output()
                .expect("setpriv starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{stderr}");
            assert!(stderr.contains("CAP_NET_ADMIN"), "{stderr}");
        }
    });
}
