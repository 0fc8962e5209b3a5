//! The descriptor store of the service manager (`sd_pid_notify_with_fds(3)`, `sd_listen_fds(3)`).

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bannerwall_ffi::descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::descriptor_names::{METRICS, QUEUE, RUN, STATE, queue_name, state_name};
use crate::diagnostics::log_line;
use crate::guard::config::GuardConfig;
use crate::guard::service_notifier::ServiceNotifier;
use crate::guard::source::SourceConfig;

/// Limit of the wait until the manager has handled all messages.
const HEARD: Duration = Duration::from_secs(5);

/// The store of the manager that started this process.
#[derive(Debug, Clone)]
pub(in crate::guard) struct DescriptorStore(Arc<ServiceNotifier>);

impl DescriptorStore {
    /// Returns the store of this manager.
    pub(in crate::guard) const fn of(manager: Arc<ServiceNotifier>) -> Self {
        Self(manager)
    }

    /// Stores a descriptor.
    pub(in crate::guard) fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        // Without this, the manager would remove a queue's socket that has lost messages.
        let poll = if name.starts_with(QUEUE) || name == METRICS { "\nFDPOLL=0" } else { "" };
        let words = format!("FDSTORE=1\nFDNAME={name}{poll}");
        if let Err(error) = self.0.send_surely(&words, Some(descriptor)) {
            log_line(format_args!(
                "bannerwall: --fd-store: cannot store {name} with the service manager: {error}"
            ));
        }
    }

    /// Removes the descriptors of this name.
    pub(in crate::guard) fn remove(&self, name: &str) {
        let removed = self.0.send_surely(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
        if let Err(error) = removed {
            log_line(format_args!("bannerwall: cannot remove {name} from the service manager: {error}"));
        }
    }

    /// Removes everything that a guard of this configuration stored, and `names`: while any process holds a
    /// queue's socket, packets wait in a queue that no process reads.
    pub(in crate::guard) fn remove_all(&self, config: &GuardConfig, names: &[String]) {
        self.remove_all_unawaited(config, names);
        self.wait();
    }

    /// Like [`DescriptorStore::remove_all`], without the wait for the manager.
    pub(in crate::guard) fn remove_all_unawaited(&self, config: &GuardConfig, names: &[String]) {
        let own = config.queues.numbers().flat_map(|queue| [queue_name(queue), state_name(queue)]);
        // A failed start may have stored only a part, and an earlier guard more than this one: both are
        // removed.
        let own = own.chain([METRICS.to_owned(), RUN.to_owned()]);
        let all: BTreeSet<String> = own.chain(names.iter().cloned()).collect();
        all.iter().for_each(|name| self.remove(name));
    }

    /// Waits for a limited time until the manager has handled all messages (`sd_notify_barrier(3)`).
    pub(in crate::guard) fn wait(&self) {
        let Ok((reader, writer)) = std::io::pipe() else { return };
        if self.0.send_surely("BARRIER=1", Some(writer.as_fd())).is_err() {
            return;
        }
        // Only the manager's copy may remain, or the read end would never see the hang-up.
        drop(writer);
        let limit = Timespec { tv_sec: HEARD.as_secs().cast_signed(), tv_nsec: 0 };
        // The manager closes its end when it reaches the message. After the limit the guard stops waiting.
        let _ = poll(&mut [PollFd::new(&reader, PollFlags::empty())], Some(&limit));
    }
}

/// The descriptors that a manager stored of the last process.
#[derive(Debug, Default)]
pub(in crate::guard) struct StoredDescriptors(pub(super) Vec<(String, OwnedFd)>);

impl StoredDescriptors {
    /// Takes all stored descriptors, even if they are not needed, so that programs which this process starts
    /// do not inherit them. A second call returns none.
    pub(in crate::guard) fn take() -> Self {
        match descriptors::inherited() {
            Ok(descriptors) => Self(descriptors.into_iter().filter(|(name, _)| is_ours(name)).collect()),
            Err(error) => {
                log_line(format_args!(
                    "bannerwall: cannot use the descriptors of the service manager: {error}"
                ));
                Self::default()
            }
        }
    }

    /// Returns the names of all descriptors.
    pub(in crate::guard) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Releases the queues that this run does not continue, and removes everything from the manager's store.
    pub(in crate::guard) fn give_back(self, manager: Option<&Arc<ServiceNotifier>>) {
        if self.0.is_empty() {
            return;
        }
        log_line(
            "bannerwall: the descriptors that the service manager stored for the previous guard are \
                  released",
        );
        let store = manager.cloned().map(DescriptorStore::of);
        for (name, socket) in self.0 {
            if let Some(store) = &store {
                store.remove(&name);
            }
            let queue = name.strip_prefix(QUEUE).and_then(|number| number.parse().ok());
            let source = queue.map(|queue| SourceConfig::new(queue).adopt(socket, false));
            // Unbinds at once, whichever process else holds the socket. A descriptor that is no queue socket,
            // or whose queue was released, just closes.
            if let Some(Ok(source)) = source
                && let Err(error) = source.close()
            {
                log_line(format_args!("bannerwall: cannot release {name} of the previous guard: {error}"));
            }
        }
        if let Some(store) = &store {
            store.wait();
        }
    }
}

/// True if a guard stored the descriptor of this name.
fn is_ours(name: &str) -> bool {
    name == METRICS || name.starts_with(QUEUE) || name.starts_with(STATE)
}
