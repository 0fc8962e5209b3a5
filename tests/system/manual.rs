//! Manual pages: groff and mandoc accept them without a warning, and each section has content.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::packages::PROGRAM;

/// Pages of the reference that become pages of section 5, with their table that must be in it.
const FORMATS: [(&str, &str); 2] = [("rules", "match.FIELD"), ("configuration", "\\-\\-enforce\\-only")];

/// Makes all pages, as scripts/package does, and returns their files.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let status =
        Command::new(PROGRAM).args(["man", "--all"]).arg(folder).status().expect("the program starts");
    assert!(status.success());
    let format = folder.join("man5");
    fs::create_dir(&format).expect("the folder is ours");
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in FORMATS {
        let page = repository.join(format!("docs/src/reference/{name}.md"));
        let output = Command::new(repository.join("scripts/manual-page"))
            .args([&format!("bannerwall-{name}"), "a purpose", "0.1.0", "2026-11-25"])
            .stdin(fs::File::open(page).expect("the page is there"))
            .output()
            .expect("python3 is installed");
        assert!(output.status.success(), "{output:?}");
        fs::write(format.join(format!("bannerwall-{name}.5")), output.stdout).expect("the folder is ours");
    }
    let sections = ["man1", "man5", "man8"].map(|section| folder.join(section));
    let files = sections.iter().flat_map(|section| fs::read_dir(section).expect("a section"));
    files.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn manual_pages_have_no_warning_and_no_empty_section() {
    let folder = TempDir::new().expect("a temporary folder");
    let pages = pages(folder.path());
    assert!(pages.len() > 80, "{pages:?}");
    let mut faults = Vec::new();
    for page in &pages {
        for words in
            [&["groff", "-man", "-ww", "-Tutf8", "-z"][..], &["mandoc", "-T", "lint", "-W", "warning"]]
        {
            let output =
                Command::new(words[0]).args(&words[1..]).arg(page).output().expect("it is installed");
            let said = [output.stdout, output.stderr].concat();
            if !said.is_empty() {
                faults.push(String::from_utf8_lossy(&said).into_owned());
            }
        }
        let text = fs::read_to_string(page).expect("a page");
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line.starts_with(".SH") && lines.peek().is_none_or(|next| next.starts_with(".SH")) {
                faults.push(format!("{}: {line} is empty", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.concat());
}

#[test]
fn pages_stand_in_their_sections_and_hold_the_reference() {
    let folder = TempDir::new().expect("a temporary folder");
    pages(folder.path());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    let guard = read("man8/bannerwall-guard.8");
    assert!(guard.contains("\nbannerwall\\-guard \\- Inspect the packets"), "{guard}");
    assert!(guard.contains("\n.SH SYNOPSIS\n\\fBbannerwall guard\\fR [OPTIONS]\n"), "{guard}");
    assert!(!folder.path().join("man1/bannerwall-guard.1").exists());
    assert!(read("man1/bannerwall.1").contains("bannerwall\\-guard(8)"));
    for (name, entry) in FORMATS {
        let page = read(&format!("man5/bannerwall-{name}.5"));
        assert!(page.contains(entry), "{name}: {page}");
    }
}
