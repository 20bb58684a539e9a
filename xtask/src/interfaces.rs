//! The command lines of the programs that chores build: help and mistakes are told before anything is built.
//!
//! A test of each program writes its file in `xtask/interfaces`, and compares it (`UPDATE_DOCS=1` writes).

use anyhow::Context as _;
use isotherm_command_interface::CommandInterface;

/// The chores and the interfaces of their programs.
const INTERFACES: [(&str, &str); 11] = [
    ("demo", include_str!("../interfaces/demo.json")),
    ("up", include_str!("../interfaces/up.json")),
    ("validate", include_str!("../interfaces/validate.json")),
    ("compare", include_str!("../interfaces/compare.json")),
    ("soak", include_str!("../interfaces/soak.json")),
    ("sim", include_str!("../interfaces/sim.json")),
    ("experiment", include_str!("../interfaces/experiment.json")),
    ("bench path", include_str!("../interfaces/bench-path.json")),
    (
        "bench scale",
        include_str!("../interfaces/bench-scale.json"),
    ),
    (
        "bench slow-bodies",
        include_str!("../interfaces/bench-slow-bodies.json"),
    ),
    ("profile", include_str!("../interfaces/profile.json")),
];

/// Ends this process with the help of a chore, or with the mistake in its arguments, if there is either.
pub(crate) fn check(chore: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut interfaces = INTERFACES.iter();
    let (_, text) = interfaces
        .find(|(name, _)| *name == chore)
        .with_context(|| format!("no interface of `{chore}`"))?;
    let command = CommandInterface::read(text)?.command();
    let words = [chore]
        .into_iter()
        .chain(arguments.iter().map(String::as_str));
    if let Err(message) = command.try_get_matches_from(words) {
        message.exit();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_makes_a_command() {
        for (name, text) in INTERFACES {
            let interface = CommandInterface::read(text).unwrap();
            let mut command = interface.command();
            command.build();
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("cargo xtask {name}")), "{help}");
        }
    }
}
