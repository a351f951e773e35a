//! DCGM's thread.
//!
//! In: the configuration, and what the agent asks. Out: its state. What can go wrong: nothing.

use super::link::{Ask, Asks, Link};
use crate::wire::order::Configure;
use crate::wire::report::{Answer, Kind, State};

/// Runs until it is asked to end.
pub fn run(_: &Configure, link: &Link, asks: &Asks) {
    let state = State { name: "dcgm".to_owned(), reason: "not_built".to_owned(), ..State::default() };
    link.send(Kind::State(state));
    for ask in asks {
        match ask {
            Ask::End => return,
            Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id) => {
                link.send(Kind::Answer(Answer { id, ..Answer::default() }));
            }
        }
    }
}
