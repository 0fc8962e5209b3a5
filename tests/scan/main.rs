//! Scans of real and scripted servers.

mod any;
mod findings;
mod greetings;
mod network;
mod nmap;
mod old_tls;
mod pipeline;
mod servers;
mod targets;
mod tls;
