//! Names of the spill's files: `RUN-NUMBER.batch`. RUN is the start of the run and its stream, so that
//! names sort in the order of sending.

/// A run; ordered by its start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunName {
    /// Start of the run: milliseconds since the epoch.
    pub(super) started: i64,
    pub(super) stream: String,
}

/// Kind of a file, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileName {
    /// The state of a run.
    Run(RunName),
    /// A batch by its number.
    Batch(RunName, u64),
    /// The last batch of a run.
    End(RunName, u64),
    /// A file that was being written.
    New(RunName),
    /// A file that was set aside.
    Aside,
}

/// The reason why a batch was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetAsideReason {
    /// Its content is damaged.
    Damaged,
    /// The server refuses it.
    Refused,
}

impl SetAsideReason {
    /// Returns the suffix of its file's name.
    pub(super) const fn ending(self) -> &'static str {
        match self {
            Self::Damaged => ".damaged",
            Self::Refused => ".refused",
        }
    }
}

impl RunName {
    /// Returns the name of its state's file.
    pub(super) fn file(&self) -> String {
        format!("{}.run", self.stem())
    }

    /// Returns the name of a batch's file.
    pub(super) fn batch(&self, number: u64, is_end: bool) -> String {
        format!("{}-{number:012}.{}", self.stem(), if is_end { "end" } else { "batch" })
    }

    fn stem(&self) -> String {
        format!("{:014}-{}", self.started, self.stream)
    }

    fn parse(stem: &str) -> Option<Self> {
        let (started, stream) = stem.split_once('-')?;
        let is_stream = (1..=64).contains(&stream.len()) && stream.bytes().all(|it| it.is_ascii_hexdigit());
        let started = digits(started)?.try_into().ok()?;
        is_stream.then(|| Self { started, stream: stream.to_owned() })
    }
}

impl FileName {
    /// Parses a name; none if it is no file of the spill.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (rest, ending) = name.rsplit_once('.')?;
        if ending == "new" {
            return match Self::parse(rest)? {
                Self::Run(run) | Self::Batch(run, _) | Self::End(run, _) => Some(Self::New(run)),
                Self::New(_) | Self::Aside => None,
            };
        }
        if [SetAsideReason::Damaged, SetAsideReason::Refused]
            .iter()
            .any(|aside| aside.ending().strip_prefix('.') == Some(ending))
        {
            return matches!(Self::parse(rest)?, Self::Batch(..) | Self::End(..)).then_some(Self::Aside);
        }
        if ending == "run" {
            return RunName::parse(rest).map(Self::Run);
        }
        let (stem, number) = rest.rsplit_once('-')?;
        let (run, number) = (RunName::parse(stem)?, digits(number).filter(|number| *number > 0)?);
        match ending {
            "batch" => Some(Self::Batch(run, number)),
            "end" => Some(Self::End(run, number)),
            _ => None,
        }
    }
}

/// Parses a number without a sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_say_what_files_are() {
        let run = RunName { started: 1_700_000_000_000, stream: "00ff".into() };
        for (name, is) in [
            (run.file(), FileName::Run(run.clone())),
            (run.batch(7, false), FileName::Batch(run.clone(), 7)),
            (run.batch(8, true), FileName::End(run.clone(), 8)),
            (format!("{}.new", run.batch(7, false)), FileName::New(run.clone())),
            (format!("{}.new", run.file()), FileName::New(run.clone())),
            (format!("{}.damaged", run.batch(7, false)), FileName::Aside),
            (format!("{}.refused", run.batch(7, true)), FileName::Aside),
        ] {
            assert_eq!(FileName::parse(&name), Some(is), "{name}");
        }
        for name in
            ["", ".", "lock", "sensor", "1-.run", "1-xyz.run", "1-ff-0.batch", "-1-ff-1.batch", "1-ff.new"]
        {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_in_the_order_of_batches(
            one in (0i64..1 << 44, 1u64..1 << 39), other in (0i64..1 << 44, 1u64..1 << 39), name in ".*",
        ) {
            let _ = FileName::parse(&name);
            let run = |started| RunName { started, stream: "ab".into() };
            let names = [one, other].map(|(started, number)| run(started).batch(number, false));
            prop_assert_eq!(names[0].cmp(&names[1]), one.cmp(&other));
            prop_assert_eq!(FileName::parse(&names[0]), Some(FileName::Batch(run(one.0), one.1)));
        }
    }
}
