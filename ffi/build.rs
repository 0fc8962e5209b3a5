//! Finds `libnetfilter_queue` by pkg-config and says which package to install where it is missing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "libnetfilter_queue")]
    find();
}

/// The first release with `nfq_nlmsg_put`, which the declarations in `src/sys.rs` need.
#[cfg(feature = "libnetfilter_queue")]
const OLDEST: &str = "1.0.5";

#[cfg(feature = "libnetfilter_queue")]
fn find() {
    if let Err(error) = pkg_config::Config::new().atleast_version(OLDEST).probe("libnetfilter_queue") {
        println!(
            "cargo::error=libnetfilter_queue {OLDEST} or newer was not found by pkg-config; install Debian's and \
             Ubuntu's `libnetfilter-queue-dev` and `pkg-config`, Fedora's `libnetfilter_queue-devel`, or Arch's \
             `libnetfilter_queue`; or build without it: --no-default-features"
        );
        for line in error.to_string().lines().filter(|line| !line.trim().is_empty()) {
            println!("cargo::warning={line}");
        }
        std::process::exit(1);
    }
}
