//! The `bannerwall` program: hands the command line to [`bannerwall::main`] and its outcome to the
//! shell.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bannerwall::main(std::env::args_os()).into()
}
