//! The command line's manners, tried on the real program: exit codes, `--config`, help on every
//! subcommand.

use std::io::Write as _;
use std::process::{Command, Output};

fn bannerwall(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bannerwall")).args(arguments).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Subcommands as `--help` lists them, without `help` itself.
fn subcommands(path: &[&str]) -> Vec<String> {
    let mut arguments = path.to_vec();
    arguments.push("--help");
    let help = stdout(&bannerwall(&arguments));
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    list.lines()
        .take_while(|line| !line.is_empty())
        // A description's second line stands deeper than a name.
        .filter_map(|line| line.strip_prefix("  ").filter(|name| !name.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let mut waiting: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        let nested = subcommands(&arguments);
        if nested.is_empty() {
            arguments.push("--help");
            let output = bannerwall(&arguments);
            assert_eq!(output.status.code(), Some(0), "{path:?}");
            assert!(stdout(&output).contains("Example"), "no example in {path:?}");
        }
        waiting.extend(nested.into_iter().map(|name| [path.as_slice(), &[name]].concat()));
    }
}

#[test]
fn a_wrong_flag_is_a_usage_error_that_names_it() {
    let output = bannerwall(&["completions", "bash", "--no-such-flag"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--no-such-flag"));
    assert!(output.stdout.is_empty());
}

#[test]
fn version_goes_to_stdout() {
    let output = bannerwall(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), format!("bannerwall {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_manual_name_the_program() {
    assert!(stdout(&bannerwall(&["completions", "bash"])).contains("_bannerwall"));
    assert!(stdout(&bannerwall(&["man"])).contains(".TH bannerwall 1"));
}

#[test]
fn every_manual_page_is_written_and_an_unknown_one_is_refused() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().display().to_string();
    assert_eq!(bannerwall(&["man", "--all", &path]).status.code(), Some(0));
    let status =
        std::fs::read_to_string(folder.path().join("man1/bannerwall-hook-status.1")).expect("a page");
    assert_eq!(status, stdout(&bannerwall(&["man", "hook", "status"])));
    assert!(
        status.contains(".TH bannerwall-hook-status 1") && status.contains("no guard reads its queue"),
        "{status}"
    );
    let unknown = bannerwall(&["man", "hook", "nope"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("bannerwall hook has no subcommand `nope`"), "{}", stderr(&unknown));
    let missing = bannerwall(&["man", "--all", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        stderr(&missing).contains("--all: cannot write /nowhere/man1/bannerwall.1"),
        "{}",
        stderr(&missing)
    );
}

fn config_file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("the file is written");
    file
}

#[test]
fn a_config_file_that_is_missing_is_named() {
    let output = bannerwall(&["man", "--config", "/nonexistent/bannerwall.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/bannerwall.toml"), "{}", stderr(&output));
}

#[test]
fn a_config_file_with_a_bad_line_is_refused_with_its_place() {
    let file = config_file("[man]\nquiet = maybe\n");
    let path = file.path().to_str().expect("a path in UTF-8");
    let output = bannerwall(&["man", "--config", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(path) && stderr(&output).contains("line 2"), "{}", stderr(&output));
}

#[test]
fn a_config_key_that_is_no_flag_is_refused_by_name() {
    let file = config_file("[man]\nquite = true\n");
    let output = bannerwall(&["man", "--config", file.path().to_str().expect("a path in UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`quite` in [man]"), "{}", stderr(&output));
}

#[test]
fn a_config_table_that_is_no_subcommand_is_refused_by_name() {
    let file = config_file("[gaurd]\nenforce = true\n");
    let output = bannerwall(&["man", "--config", file.path().to_str().expect("a path in UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gaurd"), "{}", stderr(&output));
}

#[test]
fn flags_of_the_command_line_win_over_the_config_file() {
    let file = config_file("[man]\nverbose = 2\nquiet = true\n");
    let path = file.path().to_str().expect("a path in UTF-8");
    assert_eq!(bannerwall(&["man", "--config", path]).status.code(), Some(2), "quiet and verbose conflict");
    let file = config_file("[man]\nquiet = true\n");
    let path = file.path().to_str().expect("a path in UTF-8");
    assert_eq!(bannerwall(&["man", "--config", path]).status.code(), Some(0));
}

#[test]
fn nothing_that_is_read_is_written_over_and_stdout_needs_no_flag() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [file, link] = ["file", "link"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&file, "kept").expect("the folder is ours");
    std::os::unix::fs::symlink(&file, &link).expect("the folder is ours");
    for arguments in [
        &["replay", &file, "-o", &link][..],
        &["replay", &file, "--learn", &file],
        &["scan", "connect", "-p", "1", "-i", &file, "-o", &link],
        &["scan", "connect", "-p", "1", "192.0.2.1", "--exclude-file", &link, "-o", &file],
        &["rules", "list", &file, "-o", &link],
        &["inventory", "list", "--inventory", &file, "-o", &link],
        &["inventory", "show", "192.0.2.1", "--inventory", &link, "-o", &file],
        &["inventory", "runs", "--inventory", &file, "-o", &file],
        &["rules", "import", "recog", &file, "-o", &link],
        &["rules", "import", "nvd", &link, "-o", &file],
    ] {
        let output = bannerwall(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("is both input and output"), "{}", stderr(&output));
        assert_eq!(std::fs::read(&file).expect("it is there"), b"kept");
    }
    let output = bannerwall(&["rules", "list", "rules", "-o", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("to write to stdout"), "{}", stderr(&output));
}

#[test]
fn files_without_an_end_are_refused() {
    for arguments in [
        &["guard", "--config", "/dev/zero"][..],
        &["scan", "connect", "192.0.2.1", "-p", "1", "--resume", "/dev/zero"],
        &["scan", "connect", "192.0.2.1", "-p", "1", "--resume", "/no/such/folder/state"],
    ] {
        let output = bannerwall(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let path = arguments.last().expect("a path");
        assert!(stderr(&output).contains(path), "{}", stderr(&output));
    }
}

#[test]
fn a_bad_line_of_targets_is_shown_with_its_place_and_without_its_commands_to_the_terminal() {
    let file = config_file("192.0.2.1\n\u{1b}]0;owned\u{7}\u{9b}2J\n");
    let path = file.path().to_str().expect("a path in UTF-8");
    let output = bannerwall(&["scan", "connect", "-p", "1", "-i", path]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains(&format!("{path}, line 2")) && told.contains("owned"), "{told}");
    assert!(!told.chars().any(|it| it.is_control() && it != '\n'), "{told:?}");
}

#[test]
fn what_would_be_without_effect_is_refused() {
    for (line, why) in [
        ("guard --backend nfq --max-wait 1s", "--max-wait: --backend nfq"),
        ("hook print --hook-udp 0", "`0` is not a port"),
        ("hook print --ports 22,0", "`0` is not a port"),
        ("scan ssh nowhere.invalid nobody.invalid", "no target was probed"),
    ] {
        let output = bannerwall(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(
            (output.status.code(), stderr(&output).contains(why)),
            (Some(2), true),
            "{line}: {output:?}"
        );
    }
    // One of them has an address.
    let output = bannerwall(&["scan", "connect", "nowhere.invalid", "127.0.0.1", "-p", "1"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn the_inventory_has_a_variable_and_a_default_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = folder.path().join("named.db");
    let list = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(["inventory", "list"]).args(flags).env("BANNERWALL_INVENTORY", &named);
        stderr(&command.output().expect("the program runs"))
    };
    assert!(list(&[]).contains("named.db"), "{}", list(&[]));
    assert!(list(&["--inventory", "flag.db"]).contains("flag.db"), "the flag wins");
    let default = bannerwall(&["inventory", "list"]);
    let is_there = std::path::Path::new("/var/lib/bannerwall/inventory.db").exists();
    assert!(
        is_there || stderr(&default).contains("/var/lib/bannerwall/inventory.db"),
        "{}",
        stderr(&default)
    );
}

#[test]
fn the_help_of_what_reads_traffic_is_in_groups_and_the_short_one_fits_a_screen() {
    const GROUPS: [&str; 6] = ["Traffic", "Blocking", "Rules", "Output", "Inventory", "Advanced"];
    for words in [&["guard"][..], &["replay"], &["scan", "ssh"], &["scan", "http"], &["scan", "connect"]] {
        let help = |flag: &str| stdout(&bannerwall(&[words, &[flag]].concat()));
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() <= 40, "{words:?}: {} lines\n{short}", short.lines().count());
        let headings = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.strip_suffix(':'));
            lines.filter(|line| GROUPS.contains(line)).map(str::to_owned).collect()
        };
        for text in [&short, &long] {
            let shown = headings(text);
            let expected: Vec<&str> =
                GROUPS.into_iter().filter(|group| shown.iter().any(|it| it == group)).collect();
            assert_eq!(shown, expected, "{words:?}\n{text}");
        }
        assert!(long.contains("--no-sandbox") && !short.contains("--no-sandbox"), "{words:?}");
    }
}
