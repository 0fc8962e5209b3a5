//! Lines that may precede an SSH identification, and that.

use super::awaited_input::InputNeed;
use super::finding::{DialogueFinding, ReadContext};
use super::read_step::{DialogueInput, ReadStep};
use super::ssh::{self, begins_identification};
use super::state::{Dialogue, DirectionReading, FirstProtocol};
use crate::banner::http::count_steps;
use crate::banner::ssh as identification;
use crate::terms::{Anomaly, Side};

impl Dialogue {
    /// Reads lines that may precede an identification, and finds that. A server's are its greeting, too.
    pub(super) fn read_lines(
        &mut self,
        place: usize,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let DialogueInput { from, input, .. } = turn;
        let (reading, used) = self.go_over_lines(place, turn, context);
        if from == Side::Server {
            self.greeting.read_first(input.get(..used).unwrap_or_default(), context);
        }
        self.opening.octets += used;
        context.find(DialogueFinding::Preamble(used));
        if self.opening.octets > identification::PREAMBLE_LIMIT
            || self.opening.lines > identification::PREAMBLE_LINES
        {
            context.note(Anomaly::SshLongPreamble);
        }
        match reading {
            DirectionReading::Ssh(_) => {
                let leading = self.direction(from).first.leading > 0;
                if from == Side::Client && (self.opening.client_lines || leading) {
                    context.note(Anomaly::SshClientPreamble);
                }
                self.direction_mut(from).first.spoken = FirstProtocol::Ssh;
                ReadStep::Used(used, reading)
            }
            reading if used > 0 => ReadStep::Used(used, reading),
            reading => {
                let cut = matches!(reading, DirectionReading::Lines(1..));
                let need =
                    if cut { InputNeed::line(identification::CUT_LIMIT) } else { InputNeed::another(input) };
                ReadStep::Wait(need, reading)
            }
        }
    }

    /// Goes over lines up to an identification; gives how many bytes that were.
    fn go_over_lines(
        &mut self,
        mut place: usize,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> (DirectionReading, usize) {
        let DialogueInput { from, input, .. } = turn;
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let begins = identification::begins_line(place);
            if begins && begins_identification(rest) {
                let whole = rest.starts_with(identification::PREFIX);
                match (place, identification::is_bare(rest)) {
                    (_, None) => return (DirectionReading::Lines(place), at),
                    (_, Some(false)) if !whole => return (DirectionReading::Lines(place), at),
                    (0, Some(false)) => return (DirectionReading::Ssh(ssh::SshReading::Identification), at),
                    // A line that some clients cut here, or `SSH-` alone.
                    _ => {}
                }
                let Some(line) = identification::cut_line(rest) else {
                    return (DirectionReading::Lines(place), at);
                };
                self.ssh.judge_disputed_line(from, line, context);
            } else if begins && let Some(whole) = identification::begins_among_returns(rest) {
                let line = if whole { identification::cut_line(rest) } else { None };
                let Some(line) = line else { return (DirectionReading::Lines(place), at) };
                // Dropbear's client leaves these out.
                self.ssh.judge_disputed_line(from, &identification::without_returns(line), context);
            }
            let reach = identification::next_start(place) - place;
            let readable = rest.get(..reach).unwrap_or(rest);
            count_steps(readable.len());
            match memchr::memchr(b'\n', readable) {
                Some(end) => {
                    (at, place) = (at + end + 1, 0);
                    self.opening.lines += 1;
                    self.opening.client_lines |= from == Side::Client;
                }
                None => (at, place) = (at + readable.len(), place + readable.len()),
            }
        }
        (DirectionReading::Lines(place), at)
    }
}
