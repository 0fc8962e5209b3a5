//! Advice for each category of rules: why a finding matters, and how to fix it.

/// Advice about a kind of weakness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RuleAdvice {
    /// The gain of an attacker.
    pub(super) why: &'static str,
    /// The task of the administrator.
    pub(super) fix: &'static str,
}

const UPGRADE: &str = "Upgrade the software to a fixed version, or install your distribution's security update. Until then, \
                       allow access only from networks that need it.";

/// Advice by category.
const ADVICE: [(&str, &str, &str); 25] = [
    (
        "remote-code-execution",
        "An attacker who reaches this service can run programs on the machine, often without a password.",
        UPGRADE,
    ),
    ("affected", "The version is affected by a published vulnerability.", UPGRADE),
    (
        "memory-safety",
        "Crafted data can corrupt the memory of this software. That ends in a crash, or lets an attacker run programs.",
        UPGRADE,
    ),
    ("authentication-bypass", "An attacker can use this service without a valid login.", UPGRADE),
    (
        "path-traversal",
        "An attacker can read, or write, files that this service should protect. They often hold passwords and keys.",
        UPGRADE,
    ),
    ("injection", "An attacker can add commands or queries to those that this service runs.", UPGRADE),
    (
        "request-smuggling",
        "Proxy and server disagree on where a request ends. An attacker can hide requests from the proxy, and read the answers to other clients.",
        UPGRADE,
    ),
    (
        "backdoor",
        "This build can contain a hidden way in. Treat the machine as taken over until you have proof of the contrary.",
        "Disconnect the machine, look for signs of use, and install the software again from a trusted source.",
    ),
    (
        "access-control",
        "Data or functions can be reached that should need a permission.",
        "Correct the configuration, or upgrade to a version that checks permissions.",
    ),
    (
        "information-disclosure",
        "The service gives out data that helps an attacker: files, memory, user names, or its inner state.",
        "Upgrade, or switch the function off. If secrets were readable, replace them.",
    ),
    (
        "weak-cryptography",
        "Encryption or signatures are weak. An attacker on the path can read, change or fake the connection.",
        "Upgrade, or disable the weak algorithms in the configuration. Replace keys that may be known.",
    ),
    (
        "cleartext",
        "Every machine on the path can read and change this session, passwords included.",
        "Use the encrypted form of the protocol (SSH, TLS), and close this port.",
    ),
    (
        "cleartext-credentials",
        "Every machine on the path can read this password.",
        "Offer the service by HTTPS only, and change the passwords that were sent.",
    ),
    (
        "end-of-life",
        "The software gets no more security fixes. New vulnerabilities stay open for ever.",
        "Upgrade to a supported version, or replace the software.",
    ),
    (
        "unmaintained",
        "The software has no maintainer. New vulnerabilities stay open for ever.",
        "Replace it with maintained software.",
    ),
    (
        "exposed",
        "The service needs no password by default. Any client that reaches it can read and change its data.",
        "Require a password, listen on an internal address, and close the port in the firewall.",
    ),
    (
        "exposed-service",
        "The service answers without a password. Any client that reaches it can read, and often change, its data.",
        "Require a login or a client certificate, and allow access only from networks that need it.",
    ),
    (
        "exposed-device",
        "Devices of this kind are attacked in bulk, and many of them get no updates.",
        "Update its firmware, and move the device into a network without access from the Internet.",
    ),
    (
        "development-server",
        "This server is made for development. It lacks protection, and may show source code or a debugger.",
        "Run the application behind a server for production, and switch debugging off.",
    ),
    (
        "hardening",
        "A protection is missing. It is no vulnerability by itself, but makes others worse.",
        "Set the missing option or header field. See the references.",
    ),
    (
        "policy",
        "This traffic is not what your network expects at this place.",
        "Find out which program it is. Stop it, or allow it with an override.",
    ),
    (
        "scanner",
        "The client looks for weaknesses with this tool. It may be your own scan, or the start of an attack.",
        "Ask the owner of the client. If the scan is not wanted, block the address.",
    ),
    (
        "brute-force",
        "The client guesses passwords.",
        "Block the address (`action = \"ban\"`), and use keys instead of passwords.",
    ),
    (
        "exploit-attempt",
        "The client sends a known attack. If the server is vulnerable, it may have been taken over.",
        "Block the client, check that the server is patched, and look for signs of a successful attack.",
    ),
    (
        "malware",
        "The client behaves as known malware does. It is probably infected.",
        "Disconnect the client, examine it, and install it again.",
    ),
];

/// Returns the advice for a category; none for an unknown one.
pub(super) fn advice(category: &str) -> Option<RuleAdvice> {
    let found = ADVICE.iter().find(|(name, ..)| *name == category);
    found.map(|(_, why, fix)| RuleAdvice { why, fix })
}
