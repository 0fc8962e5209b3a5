//! Commands of README.md and the tutorials: each page is run as it stands, in networks of its own, and what the commands
//! print is compared with what the page shows.
//!
//! A page runs in one shell, in a folder that looks like a clone of the repository, with `/run`, processes and networks
//! of its own. `<!-- not run: REASON -->` before a block leaves it out.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use bannerwall_test_support::{as_root, command_lines};
use regex::Regex;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// Functions of the shell that a page runs in. The guard of a test starts more slowly than one of a user: pauses end when
/// the programs in the background are ready. With job control, they heed Ctrl-C.
const PRELUDE: &str = r#"
set -m
sudo() { "$@"; }
settled() {
  local log tries
  for log in guard.log foreground.log; do
    [ -e "$log" ] && [ -n "$(jobs -r)" ] || continue
    for tries in $(seq 300); do grep -qE 'ready: |http://' "$log" && break; command sleep 0.1; done
  done
}
sleep() { command sleep $((2 * $1)); settled; }
interrupt() { kill -INT "$1" && wait "$1"; }
"#;

/// One command or block of a page, and the lines that the page shows of its output.
#[derive(Debug)]
struct Step {
    commands: String,
    shown: Vec<String>,
    /// Number of commands as the page has them, 0 for files.
    written: usize,
    /// True if the block is a script of several commands that must succeed.
    must_succeed: bool,
}

/// Reads the steps of a page: `sh` blocks, commands of `console` blocks, and `toml` blocks that name their file.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    let mut left_out = false;
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            left_out = line.starts_with("<!-- not run: ") || (left_out && line.is_empty());
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if std::mem::take(&mut left_out) {
            continue;
        }
        match language {
            "sh" => steps.push(script(&block)),
            "console" => session(&block, &mut steps),
            "text" => {
                if let Some(last) = steps.last_mut() {
                    last.shown.extend(block.iter().map(ToString::to_string));
                }
            }
            "toml" => steps.extend(named_file(&block)),
            // Files of other programs.
            "yaml" | "ini" | "sql" | "json" => {}
            other => panic!("a block of the kind `{other}`"),
        }
    }
    steps
}

/// Takes a block of commands as one step. A server in the foreground runs until the block ends, as if the rest were typed
/// in another terminal, and then gets Ctrl-C.
fn script(block: &[&str]) -> Step {
    let mut commands = String::new();
    let mut foreground = 0;
    for line in block {
        let command = line.trim_start_matches("sudo ");
        let serves = ["bannerwall serve", "bannerwall guard"].iter().any(|start| command.starts_with(start));
        if serves && !command.ends_with('&') {
            let command = command.split(" #").next().unwrap_or(command);
            let end = if foreground > 0 { "interrupt $foreground\n" } else { "" };
            let _ = writeln!(
                commands,
                "{end}: >foreground.log\n{command} >foreground.log 2>&1 &\nforeground=$!\nsettled"
            );
            foreground += 1;
        } else {
            let _ = writeln!(commands, "{line}");
        }
    }
    if foreground > 0 {
        commands += "cat foreground.log\ninterrupt $foreground\n";
    }
    Step {
        commands,
        shown: Vec::new(),
        written: command_lines(block, false).iter().filter(|line| !line.trim().is_empty()).count(),
        must_succeed: true,
    }
}

/// Takes each command behind `$ ` as a step, with the output shown below it.
fn session(block: &[&str], steps: &mut Vec<Step>) {
    for line in block {
        match line.strip_prefix("$ ") {
            Some(command) => {
                steps.push(Step {
                    commands: format!("{command}\n"),
                    shown: Vec::new(),
                    written: 1,
                    must_succeed: false,
                });
            }
            None => steps.last_mut().expect("a command stands first").shown.push((*line).to_owned()),
        }
    }
}

/// Writes a block to the file that its first line names, `# mine.toml`.
fn named_file(block: &[&str]) -> Option<Step> {
    let name = block.first()?.strip_prefix("# ").filter(|name| name.ends_with(".toml"))?;
    let commands = format!("cat >{name} <<'END'\n{}\nEND\n", block.join("\n"));
    Some(Step { commands, shown: Vec::new(), written: 0, must_succeed: true })
}

/// Removes from a line what differs from run to run: times, durations, ports of clients, patch levels, folders.
fn stable(line: &str, folder: &Path) -> String {
    let mut line = line.replace(&folder.display().to_string(), "/home/ann/bannerwall");
    for (varying, name) in [
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
        (r"\d{4}-\d\d-\d\d", "DATE"),
        (r"(192\.0\.2\.2):\d+", "$1:PORT"),
        (r"deb12u\d\d+", "deb12uNEW"),
        (r"\d+\.\d+ s\b|\b\d+ s ago", "SECONDS"),
        (r"\d+ targets a second|\d+ milliseconds|\d+ (octets|bytes), rules", "NUMBER"),
    ] {
        line = Regex::new(varying).expect("a regex").replace_all(&line, name).into_owned();
    }
    line.trim_end().to_owned()
}

/// Makes a folder that looks like a clone with a built program.
fn clone_of_repository() -> TempDir {
    let folder = TempDir::with_prefix("documentation-").expect("a temporary folder");
    for (name, target) in [("scripts", "scripts"), ("docs", "docs")] {
        symlink(Path::new(REPOSITORY).join(target), folder.path().join(name)).expect("the folder is ours");
    }
    // Rules of another user, as those of a clone may be, are refused for root.
    let copied =
        Command::new("cp").arg("-r").arg(Path::new(REPOSITORY).join("rules")).arg(folder.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "the rules are copied");
    fs::create_dir_all(folder.path().join("target/release")).expect("the folder is ours");
    symlink(PROGRAM, folder.path().join("target/release/bannerwall")).expect("the folder is ours");
    folder
}

/// Runs a page behind `before`, commands that bring about what the page takes for granted.
fn run(page: &str, before: &str) {
    let text = fs::read_to_string(Path::new(REPOSITORY).join(page)).expect("the page is there");
    run_steps(page, &steps(&text), before);
}

/// Runs the commands of a page, and does not compare what they print.
fn run_commands(page: &str, before: &str) {
    let text = fs::read_to_string(Path::new(REPOSITORY).join(page)).expect("the page is there");
    // Blocks in lists are indented.
    let text =
        text.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let steps = steps(&text).into_iter().map(|step| Step { shown: Vec::new(), must_succeed: true, ..step });
    run_steps(page, &steps.collect::<Vec<_>>(), before);
}

fn run_steps(page: &str, steps: &[Step], before: &str) {
    let folder = clone_of_repository();
    let results = TempDir::new().expect("a temporary folder");
    let mut script =
        format!("cd {}\nPATH=$PWD/target/release:$PATH\n{PRELUDE}{before}\n", folder.path().display());
    for (number, step) in steps.iter().enumerate() {
        let output = results.path().join(number.to_string());
        let output = output.display();
        let _ =
            writeln!(script, "{{\n{}}} >{output} 2>&1 </dev/null\necho $? >{output}.status", step.commands);
    }
    let file = results.path().join("script");
    fs::write(&file, &script).expect("the folder is ours");
    let status = Command::new("timeout")
        .args([
            "--signal=KILL",
            "300",
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-c", "mount -t tmpfs tmpfs /run && ip link set lo up && exec bash \"$1\"", "bash"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .expect("unshare starts");
    assert!(status.status.success(), "{page}: {status:?}\n{script}");
    for (number, step) in steps.iter().enumerate() {
        let read = |suffix: &str| fs::read_to_string(results.path().join(format!("{number}{suffix}")));
        let output = read("").expect("the step ran");
        let status = read(".status").expect("the step ran");
        let printed: Vec<String> = output.lines().map(|line| stable(line, folder.path())).collect();
        for line in &step.shown {
            let wanted = stable(line, folder.path());
            assert!(
                printed.contains(&wanted),
                "{page}: {}\nshows      {wanted}\nbut prints {printed:#?}",
                step.commands
            );
        }
        assert!(
            !step.must_succeed || status == "0\n",
            "{page}: {}\nends with {status}{output}",
            step.commands
        );
    }
}

#[test]
fn the_first_scan_works_as_it_is_written() {
    as_root(|| run("docs/src/tutorial/first-scan.md", ""));
}

#[test]
fn the_first_guard_works_as_it_is_written() {
    as_root(|| run("docs/src/tutorial/first-guard.md", ""));
}

#[test]
fn the_first_rule_works_as_it_is_written() {
    as_root(|| run("docs/src/tutorial/first-rule.md", ""));
}

/// Puts the reader on the playground's router.
const ON_THE_ROUTER: &str = r#"
scripts/playground up >/dev/null || exit 1
mkdir router && PATH=$PWD/router:$PATH
printf '#!/bin/sh\nexec scripts/playground router target/release/bannerwall "$@"' >router/bannerwall
chmod +x router/bannerwall
"#;

/// What guides take for granted: a server on the client's network, a list of hosts, a rule, a capture and an inventory.
const FOR_GUIDES: &str = r#"
ip -n bw-client addr add 192.0.2.7/24 dev eth0
(cat /etc/hosts; echo 192.0.2.7 www.example mail.example host.example) >hosts && mount --bind hosts /etc/hosts
dropbearkey -t ed25519 -f dropbear.key >/dev/null 2>&1
scripts/playground client dropbear -r dropbear.key -F -P dropbear.pid -p 192.0.2.7:22 >/dev/null 2>&1 &
printf '192.0.2.7\n198.51.100.2\n' >hosts.txt
printf '[[rule]]\nid = "a"\nprotocol = "ssh"\nmatch.banner = "."\naction = "alert"\n' >mine.toml
scripts/playground router tcpdump -Z root -i any -U -w capture.pcap tcp >/dev/null 2>&1 &
capture=$!
command sleep 2
scripts/playground client curl -sS -A sqlmap/1.7 http://198.51.100.2/ >/dev/null
bannerwall scan ssh 198.51.100.0/28 192.0.2.7 --inventory net.db >/dev/null 2>&1
bannerwall scan ssh 198.51.100.0/28 --format xml -o scan.xml >/dev/null 2>&1
command sleep 1; kill $capture; wait $capture
cp capture.pcap part1.pcap && cp capture.pcap part2.pcap && gzip -k capture.pcap
"#;

#[test]
fn the_readme_works_as_it_is_written() {
    as_root(|| run("README.md", ON_THE_ROUTER));
}

/// Guides that need no more than the playground. Their examples show other machines: only their commands count.
#[test]
fn guides_work_as_they_are_written() {
    as_root(|| {
        for guide in ["docker-nat", "enforce", "hang", "import-export", "inventory", "replay", "scan"] {
            run_commands(&format!("docs/src/howto/{guide}.md"), &format!("{ON_THE_ROUTER}{FOR_GUIDES}"));
        }
    });
}

#[test]
fn nearly_all_commands_of_readme_and_tutorials_are_run() {
    let pages = [
        "README.md",
        "docs/src/tutorial/first-scan.md",
        "docs/src/tutorial/first-guard.md",
        "docs/src/tutorial/first-rule.md",
    ];
    let (mut all, mut run) = (0, 0);
    for page in pages {
        let text = fs::read_to_string(Path::new(REPOSITORY).join(page)).expect("the page is there");
        let count = |text: &str| steps(text).iter().map(|step| step.written).sum::<usize>();
        run += count(&text);
        all += count(&text.replace("<!-- not run: ", "<!-- "));
    }
    println!("{run} of {all} commands are run");
    assert!(run * 10 >= all * 9 && all > 50, "only {run} of {all} commands are run");
}
