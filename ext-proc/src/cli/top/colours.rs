//! The colours of `isotherm top`. Without colours, bold and dim text still tell states apart.

use std::env;

use clap::ColorChoice;
use ratatui::style::{Color, Modifier, Style};

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colours {
    is_enabled: bool,
}

impl Colours {
    /// The colours that the option and the environment ask for (<https://no-color.org>).
    pub(super) fn of_terminal(choice: ColorChoice) -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let colours = Self::choose(choice, is_set("NO_COLOR") || is_dumb);
        // Without this, the library would obey the variable against `--color always`.
        crossterm::style::force_color_output(colours.is_enabled);
        colours
    }

    /// Colours by the option, where `is_plain` says that the environment asks for none.
    pub(super) const fn choose(choice: ColorChoice, is_plain: bool) -> Self {
        let is_enabled = match choice {
            ColorChoice::Auto => !is_plain,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self { is_enabled }
    }

    fn of(self, colour: Color) -> Style {
        match self.is_enabled {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// A replica that takes requests.
    pub(super) fn good(self) -> Style {
        self.of(Color::Green)
    }

    /// A replica that is full or drains.
    pub(super) fn busy(self) -> Style {
        self.of(Color::Yellow)
    }

    /// A failure.
    pub(super) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The filled part of a bar.
    pub(super) fn bar(self) -> Style {
        self.of(Color::Cyan)
    }

    /// Headings.
    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Text beside the figures.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_stronger_than_the_environment() {
        for (choice, is_plain, is_coloured) in [
            (ColorChoice::Auto, false, true),
            (ColorChoice::Auto, true, false),
            (ColorChoice::Always, true, true),
            (ColorChoice::Never, false, false),
        ] {
            let colours = Colours::choose(choice, is_plain);
            let has_colour = colours.bad().fg.is_some();
            assert_eq!(has_colour, is_coloured, "{choice} {is_plain}");
        }
    }
}
