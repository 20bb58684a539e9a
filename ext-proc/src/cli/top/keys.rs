//! The keys of `isotherm top`: what they sort, show and scroll.

use std::cmp::Reverse;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::admin::view::ReplicaView;

/// The keys, for the last line of the screen.
pub(super) const HELP: &str =
    "sort: a address, s state, f in flight, c cache | l learned, t tables | q quit";

/// Columns that an arrow shifts the tables by.
const SHIFT: u16 = 8;
/// Most columns that the tables are shifted by.
const SHIFTED_MAX: u16 = 400;

/// State of the screen that keys change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) sort: SortKey,
    /// Whether the screen shows what each pool has learned.
    pub(super) shows_learned: bool,
    /// Whether the screen shows every table instead of pools and replicas.
    pub(super) shows_tables: bool,
    /// Lines above the first one on the screen.
    pub(super) scrolled: usize,
    /// Columns of the tables to the left of the screen.
    pub(super) shifted: u16,
}

/// The order of the replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortKey {
    /// By pool and address, as the service lists them.
    #[default]
    Address,
    /// Failed replicas first, then replicas that take no request.
    State,
    /// The most requests in flight first.
    InFlight,
    /// The fullest KV cache first.
    Cache,
}

/// Effect of a key on the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Draw,
    Quit,
}

impl Keys {
    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Action::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('a') => self.sort = SortKey::Address,
            KeyCode::Char('s') => self.sort = SortKey::State,
            KeyCode::Char('f') => self.sort = SortKey::InFlight,
            KeyCode::Char('c') => self.sort = SortKey::Cache,
            KeyCode::Char('l') => self.shows_learned = !self.shows_learned,
            KeyCode::Char('t') => {
                self.shows_tables = !self.shows_tables;
                (self.scrolled, self.shifted) = (0, 0);
            }
            KeyCode::Right if self.shows_tables => {
                self.shifted = SHIFTED_MAX.min(self.shifted.saturating_add(SHIFT));
            }
            KeyCode::Left => self.shifted = self.shifted.saturating_sub(SHIFT),
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(10),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        Action::Draw
    }

    /// Scrolls no further than to the last of `lines` on a part of the screen of this height.
    pub(super) fn scroll_within(&mut self, lines: usize, height: usize) -> usize {
        self.scrolled = self.scrolled.min(lines.saturating_sub(height));
        self.scrolled
    }

    /// Replicas in the order that was asked for. Equal ones stay in the order of the service.
    pub(super) fn sorted<'a>(&self, replicas: &'a [ReplicaView]) -> Vec<&'a ReplicaView> {
        let mut sorted = Vec::from_iter(replicas);
        match self.sort {
            SortKey::Address => {}
            SortKey::State => sorted.sort_by_key(|replica| {
                let is_available = replica.availability == "available" && !replica.draining;
                (replica.failure.is_none(), is_available)
            }),
            SortKey::InFlight => sorted.sort_by_key(|replica| Reverse(replica.outstanding)),
            SortKey::Cache => {
                let usage = |replica: &ReplicaView| replica.kv_usage.unwrap_or(-1.0);
                sorted.sort_by(|a, b| usage(b).total_cmp(&usage(a)));
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::admin::view::FailureView;
    use crate::cli::top::tests::snapshot;

    fn pressed(keys: &mut Keys, code: KeyCode) -> Action {
        keys.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn replica(address: &str, outstanding: u32, kv_usage: f32) -> ReplicaView {
        ReplicaView {
            address: address.into(),
            outstanding,
            kv_usage: Some(kv_usage),
            availability: "available".into(),
            ..snapshot(Instant::now(), 1, 1).replicas.remove(0)
        }
    }

    #[test]
    fn q_escape_and_control_c_quit_and_other_keys_do_not() {
        let mut keys = Keys::default();
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(pressed(&mut keys, code), Action::Quit);
        }
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(keys.press(control), Action::Quit);
        for code in [KeyCode::Char('c'), KeyCode::Char('x'), KeyCode::Up] {
            assert_eq!(pressed(&mut keys, code), Action::Draw);
        }
    }

    #[test]
    fn each_sort_key_has_its_order() {
        let mut replicas = vec![
            replica("10.0.0.1:1", 1, 0.9),
            replica("10.0.0.2:1", 3, 0.1),
            replica("10.0.0.3:1", 2, 0.5),
        ];
        replicas[2].failure = Some(FailureView::default());
        let mut keys = Keys::default();
        for (key, order) in [
            ('f', ["2", "3", "1"]),
            ('c', ["1", "3", "2"]),
            ('s', ["3", "1", "2"]),
            ('a', ["1", "2", "3"]),
        ] {
            pressed(&mut keys, KeyCode::Char(key));
            let sorted = keys.sorted(&replicas);
            let numbers: Vec<_> = sorted.iter().map(|one| &one.address[7..8]).collect();
            assert_eq!(numbers, order, "{key}");
        }
    }

    #[test]
    fn scrolling_ends_at_the_last_line() {
        let mut keys = Keys::default();
        for _ in 0..5 {
            pressed(&mut keys, KeyCode::PageDown);
        }
        assert_eq!(keys.scroll_within(30, 10), 20);
        assert_eq!(keys.scroll_within(5, 10), 0);
        pressed(&mut keys, KeyCode::Up);
        assert_eq!(keys.scrolled, 0);
        pressed(&mut keys, KeyCode::Right);
        assert_eq!(keys.shifted, 0, "only tables are wider than the screen");
        pressed(&mut keys, KeyCode::Char('t'));
        pressed(&mut keys, KeyCode::Right);
        assert_eq!(keys.shifted, SHIFT);
        pressed(&mut keys, KeyCode::Left);
        assert_eq!(keys.shifted, 0);
    }
}
