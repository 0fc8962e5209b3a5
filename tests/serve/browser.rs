//! A browser for the tests of the page.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A headless chromium, driven by its developers' tools.
pub struct Browser {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Browser {
    pub fn start() -> Self {
        Self::by(Command::new("/usr/bin/python3"))
    }

    /// One whose driver is run by a command of python3.
    pub fn by(mut python: Command) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/drive.py");
        let mut process = python
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Debian's python3 is installed");
        let orders = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut browser = Self { process, orders, answers };
        assert_eq!(browser.answer()["value"], "ready");
        browser
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the driver answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the driver: {error}: {line}"))
    }

    pub fn obey(&mut self, order: &Value) -> (Value, Vec<Value>) {
        writeln!(self.orders, "{order}").expect("the driver listens");
        let mut answer = self.answer();
        assert_eq!(answer.get("error"), None, "{order}: {answer}");
        (answer["value"].take(), answer["console"].as_array().cloned().unwrap_or_default())
    }

    /// Loads a page; what it complains of.
    pub fn go(&mut self, url: &str) -> Vec<Value> {
        self.obey(&json!({ "go": url })).1
    }

    pub fn evaluate(&mut self, expression: &str) -> Value {
        self.obey(&json!({ "evaluate": expression })).0
    }

    /// Sets the width of the page, and dark or light colours.
    pub fn view(&mut self, width: u32, is_dark: bool) {
        self.obey(&json!({ "width": width, "height": 900, "dark": is_dark }));
    }

    /// The faults of the page's design at both widths, dark and light: it is wider than the window, a control
    /// has no label, text is hard to read.
    pub fn faults(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for (width, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
            self.view(width, is_dark);
            let found = self.evaluate(FAULTS);
            let found = found.as_array().expect("a list").iter().map(|it| format!("{width} {is_dark}: {it}"));
            faults.extend(found);
        }
        faults
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends the browser when nobody gives orders any more.
        drop(std::mem::replace(&mut self.orders, no_stdin()));
        let _ = self.process.wait();
    }
}

/// Looks for faults of the page as it is shown.
const FAULTS: &str = include_str!("../browser/faults.js");

/// Something to put in the place of a pipe that is closed.
fn no_stdin() -> ChildStdin {
    let mut nobody = Command::new("true").stdin(Stdio::piped()).spawn().expect("`true` is there");
    let stdin = nobody.stdin.take().expect("it is piped");
    let _ = nobody.wait();
    stdin
}
