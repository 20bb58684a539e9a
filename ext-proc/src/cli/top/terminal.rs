//! The terminal of `isotherm top`: the alternate screen in raw mode, restored after the last frame, an error or a panic.

use anyhow::Context as _;
use ratatui::{DefaultTerminal, Frame};

/// The alternate screen. Dropping it restores the terminal with its scroll-back; a panic restores it before its message.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Enters the alternate screen.
    pub(super) fn enter() -> anyhow::Result<Self> {
        let terminal = ratatui::try_init()
            .context("cannot draw on this terminal: use --once for plain text")?;
        Ok(Self(terminal))
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        let drawn = self.0.draw(render);
        drawn.map(drop).context("cannot draw on this terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
