//! One protocol leaves the connection to whatever follows: proxies (`CONNECT`, SOCKS) and greeted
//! dialogues (`STARTTLS` and its like).
//!
//! What follows is looked at like a connection of its own. A client that has asked may go on before it is
//! granted, so that its direction is handed over at once; the server's when it grants. Where it refuses,
//! a client that has said nothing yet goes on as before.

use super::greeting::GreetingState;
use super::read_step::{ProtocolSwitch, RequestedUpgrade};
use super::state::{Dialogue, DirectionReading, DirectionStart, FirstProtocol};
use crate::event::Side;

impl Dialogue {
    /// Leaves what follows to another dialogue.
    pub(super) fn hand_over(&mut self, from: Side, handover: ProtocolSwitch) {
        match handover {
            ProtocolSwitch::Relayed => {
                let direction = self.direction_mut(from);
                direction.relays = direction.relays.saturating_add(1);
                direction.reset_directions();
            }
            ProtocolSwitch::Proxied => self.direction_mut(from).reset_directions(),
            ProtocolSwitch::Asked(what) => {
                self.asked = what;
                self.direction_mut(from).reset_directions();
                // What the server said before tells nothing of what follows.
                self.direction_mut(from.other()).first = DirectionStart::default();
            }
            ProtocolSwitch::Granted => {
                self.greeting = GreetingState::default();
                self.direction_mut(from).reset_directions();
                if std::mem::take(&mut self.asked) == RequestedUpgrade::Nothing {
                    self.direction_mut(from.other()).reset_directions();
                }
            }
        }
    }

    /// The server does not grant what was asked for: a client that has said nothing since goes on as
    /// `reading`.
    pub(super) fn refuse(
        &mut self,
        asked: RequestedUpgrade,
        spoken: FirstProtocol,
        reading: DirectionReading,
    ) {
        if self.asked != asked {
            return;
        }
        self.asked = RequestedUpgrade::Nothing;
        if matches!(self.direction(Side::Client).reading, DirectionReading::New) {
            self.direction_mut(Side::Client).first.spoken = spoken;
            self.change(Side::Client, reading);
        }
    }
}
