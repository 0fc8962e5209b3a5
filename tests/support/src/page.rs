//! What tests look at the page of `bannerwall serve` with.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::eventually;

/// What a page answers whose limit of requests is reached, which is no limit of wrong logins.
const TOO_MANY: &str = "too many requests\n";

/// How long such a page is left alone; it takes 40 requests a second of one address.
const PAUSE: Duration = Duration::from_millis(200);

/// Status and body of what curl gets; a page that has been asked too often of late is asked again.
///
/// # Panics
/// When nothing is served, or no text.
pub fn curl(arguments: &[&str]) -> (u16, String) {
    eventually("the page to take a request", || {
        let answer = once(arguments);
        let is_taken = answer.1 != TOO_MANY;
        if !is_taken {
            std::thread::sleep(PAUSE);
        }
        is_taken.then_some(answer)
    })
}

fn once(arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-w", "\n%{http_code}"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("what is served is UTF-8");
    let (body, status) = text.rsplit_once('\n').expect("the status stands behind the body");
    (status.parse().expect("a number"), body.to_owned())
}

/// The status of what curl gets.
///
/// # Panics
/// As [`curl`].
pub fn status(arguments: &[&str]) -> u16 {
    curl(arguments).0
}

/// The JSON at a URL.
///
/// # Panics
/// As [`curl`], and when it is none.
pub fn get_json(url: &str) -> Value {
    let (status, body) = curl(&[url]);
    assert_eq!(status, 200, "{url}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{url}: {error}: {body}"))
}
