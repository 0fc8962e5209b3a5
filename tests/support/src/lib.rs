//! Support for whole-program tests: throw-away network namespaces, real servers and clients in them,
//! and waiting on conditions instead of on the clock.
//!
//! Everything made here belongs to a value and goes away with it: a namespace with its last process,
//! a process by its own id. Nothing has a name that two runs could share.
//!
//! The functions panic where a test cannot go on; that is how a test fails.
#![forbid(unsafe_code)]

mod application;
mod capture;
mod command_lines;
mod guard;
pub mod hello;
pub mod mutants;
mod namespace;
pub mod page;
mod postgres;
mod process;
pub mod raw;
pub mod reference;
mod root;
mod server;

pub use application::{Application, Talk};
pub use capture::end_capture;
pub use command_lines::command_lines;
pub use guard::{Guard, JUDGES_ALL, NO_SQLMAP, forbids};
pub use namespace::{Line, Namespace};
pub use postgres::{Postgres, psql};
pub use process::{Running, Signal, eventually, json_lines, json_lines_so_far};
pub use root::as_root;
pub use server::{
    Apache, Banner, Dropbear, Nginx, PATIENT, PythonHttp, Sshd, send_in_chunks, serve_by, ssh_servers,
    wait_listening,
};
