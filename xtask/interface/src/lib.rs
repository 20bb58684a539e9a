//! The command line of a program as data, so that `cargo xtask` can check arguments and print help without the program.
//!
//! ```text
//! clap::Command of a program ── CommandInterface::of ──> JSON beside xtask ── CommandInterface::command ──> clap::Command
//!                               a test of the program      checked in           xtask parses, before it builds anything
//! ```
//! The data hold names, help, defaults, listed values, conflicts, and whether a value is a number. A program checks the rest
//! itself: the bounds of a number, a file that must exist, an option that needs another one.

use std::fmt::Display;
use std::path::Path;
use std::{env, fs};

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgGroup, Command};
use serde::{Deserialize, Serialize};

/// The variable that makes [`check_current`] write its file.
const UPDATE: &str = "UPDATE_DOCS";

/// The command line of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandInterface {
    name: String,
    about: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    after_help: String,
    arguments: Vec<ArgumentInterface>,
    /// Lists of arguments of which one must be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<Vec<String>>,
}

/// An option, a flag, or an argument without a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ArgumentInterface {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    long: Option<String>,
    help: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    long_help: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    is_required: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<String>,
    /// `None` for a flag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<ValueInterface>,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ValueInterface {
    name: String,
    form: ValueForm,
    #[serde(default, skip_serializing_if = "is_false")]
    is_list: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delimiter: Option<char>,
    /// Whether one option takes several values.
    #[serde(default, skip_serializing_if = "is_false")]
    takes_several: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
}

/// The form of an option's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ValueForm {
    Text,
    WholeNumber,
    OneOf(Vec<(String, String)>),
}

impl CommandInterface {
    /// The interface of a command without subcommands. `name` is the line that a user types in front of the arguments.
    #[must_use]
    pub fn of(name: &str, command: &Command) -> Self {
        let arguments = command.get_arguments();
        let about = command.get_long_about().or_else(|| command.get_about());
        let groups = command.get_groups();
        let alternatives = groups.filter(|group| group.is_required_set());
        Self {
            name: name.to_owned(),
            about: about.map(ToString::to_string).unwrap_or_default(),
            after_help: command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default(),
            alternatives: alternatives
                .map(|group| group.get_args().map(ToString::to_string).collect())
                .collect(),
            arguments: arguments
                .filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()))
                .map(|argument| ArgumentInterface::of(command, argument))
                .collect(),
        }
    }

    /// Reads what [`check_current`] wrote.
    ///
    /// # Errors
    /// When the text is no interface.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// A command that accepts what the program accepts, and prints its help. It lives as long as the process, as its texts do.
    #[must_use]
    pub fn command(self) -> Command {
        let interface: &'static Self = Box::leak(Box::new(self));
        let command = Command::new(&*interface.name)
            .bin_name(&*interface.name)
            .about(&*interface.about)
            .after_help(&*interface.after_help)
            .args(interface.arguments.iter().map(ArgumentInterface::argument));
        let groups = interface.alternatives.iter().map(|arguments| {
            ArgGroup::new(&*format!("one of {}", arguments.join(", ")).leak())
                .args(arguments.iter().map(String::as_str))
                .required(true)
        });
        command.groups(groups)
    }
}

impl ArgumentInterface {
    fn of(command: &Command, argument: &Arg) -> Self {
        let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
        let conflicts = command.get_arg_conflicts_with(argument);
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        Self {
            id: argument.get_id().to_string(),
            long: argument.get_long().map(str::to_owned),
            help: text(argument.get_help()).unwrap_or_default(),
            long_help: text(argument.get_long_help()),
            is_required: argument.is_required_set(),
            conflicts: conflicts
                .iter()
                .map(|one| one.get_id().to_string())
                .collect(),
            value: takes_value.then(|| ValueInterface::of(argument)),
        }
    }

    fn argument(&'static self) -> Arg {
        let argument = Arg::new(&*self.id)
            .help(&*self.help)
            .required(self.is_required)
            .conflicts_with_all(self.conflicts.iter().map(String::as_str));
        let argument = match &self.long {
            Some(long) => argument.long(&**long),
            None => argument,
        };
        let argument = match &self.long_help {
            Some(help) => argument.long_help(&**help),
            None => argument,
        };
        match &self.value {
            Some(value) => value.argument(argument),
            None => argument.action(ArgAction::SetTrue),
        }
    }
}

impl ValueInterface {
    fn of(argument: &Arg) -> Self {
        let names = argument.get_value_names().and_then(<[_]>::first);
        let default = argument.get_default_values().first();
        let values = argument.get_possible_values();
        let listed = values.iter().filter(|value| !value.is_hide_set());
        let listed: Vec<(String, String)> = listed
            .map(|value| {
                let help = value.get_help().map(ToString::to_string);
                (value.get_name().to_owned(), help.unwrap_or_default())
            })
            .collect();
        Self {
            name: names.map(ToString::to_string).unwrap_or_default(),
            form: match listed.is_empty() {
                false => ValueForm::OneOf(listed),
                true if is_whole_number(argument.get_value_parser()) => ValueForm::WholeNumber,
                true => ValueForm::Text,
            },
            is_list: matches!(argument.get_action(), ArgAction::Append),
            delimiter: argument.get_value_delimiter(),
            takes_several: argument
                .get_num_args()
                .is_some_and(|range| range.max_values() > 1),
            default: default.map(|value| value.to_string_lossy().into_owned()),
        }
    }

    fn argument(&'static self, argument: Arg) -> Arg {
        let action = if self.is_list {
            ArgAction::Append
        } else {
            ArgAction::Set
        };
        let argument = argument.action(action).value_name(&*self.name);
        let argument = match &self.default {
            Some(default) => argument.default_value(&**default),
            None => argument,
        };
        let argument = match self.delimiter {
            Some(delimiter) => argument.value_delimiter(delimiter),
            None => argument,
        };
        let argument = match self.takes_several {
            true => argument.num_args(1..),
            false => argument,
        };
        match &self.form {
            ValueForm::Text => argument,
            ValueForm::WholeNumber => argument.value_parser(clap::value_parser!(u64)),
            ValueForm::OneOf(values) => argument.value_parser(one_of(values)),
        }
    }
}

fn one_of(values: &'static [(String, String)]) -> PossibleValuesParser {
    let values = values.iter().map(|(name, help)| {
        let value = PossibleValue::new(&**name);
        match help.is_empty() {
            true => value,
            false => value.help(&**help),
        }
    });
    PossibleValuesParser::new(values)
}

fn is_whole_number(parser: &ValueParser) -> bool {
    let whole: [ValueParser; 5] = [
        clap::value_parser!(u8).into(),
        clap::value_parser!(u16).into(),
        clap::value_parser!(u32).into(),
        clap::value_parser!(u64).into(),
        clap::value_parser!(usize).into(),
    ];
    whole.iter().any(|one| one.type_id() == parser.type_id())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Compares a file with the interface of a command, or writes it where `UPDATE_DOCS` is set.
///
/// # Errors
/// When the file differs, or cannot be written.
pub fn check_current(path: &Path, name: &str, command: &Command) -> Result<(), String> {
    let told = |error: &dyn Display| format!("{}: {error}", path.display());
    let interface = CommandInterface::of(name, command);
    let text = serde_json::to_string_pretty(&interface).map_err(|error| told(&error))? + "\n";
    if env::var_os(UPDATE).is_some() {
        fs::write(path, &text).map_err(|error| told(&error))?;
    }
    let found = fs::read_to_string(path).map_err(|error| told(&error))?;
    if found != text {
        let remedy =
            format!("it differs from the command line of `{name}`; run this test with {UPDATE}=1");
        return Err(told(&remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, ValueEnum};

    use super::*;

    #[derive(Clone, ValueEnum)]
    enum Colour {
        /// Of the sky
        Blue,
        Red,
    }

    /// Paints a wall
    #[derive(Parser)]
    #[command(
        name = "paint",
        bin_name = "paint",
        after_help = "Stir first.",
        group(ArgGroup::new("tool").required(true).args(["brush", "roller"])),
    )]
    struct Paint {
        /// The wall
        wall: String,
        /// Colours
        ///
        /// One layer each.
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        colour: Vec<Colour>,
        /// Layers
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=9))]
        layers: u16,
        /// A brush
        #[arg(long)]
        brush: bool,
        /// A roller
        #[arg(long)]
        roller: bool,
        /// Leaves the wall as it is
        #[arg(long, conflicts_with = "layers")]
        nothing: bool,
    }

    fn rebuilt() -> Command {
        let interface = CommandInterface::of("paint", &Paint::command());
        let text = serde_json::to_string(&interface).unwrap();
        CommandInterface::read(&text).unwrap().command()
    }

    #[test]
    fn help_is_that_of_the_program() {
        let help = |mut command: Command| command.render_long_help().to_string();
        assert_eq!(help(rebuilt()), help(Paint::command()));
    }

    #[test]
    fn arguments_are_accepted_and_refused_as_the_program_does() {
        for line in [
            "w",
            "w --colour blue,red",
            "w --colour red --layers 3",
            "w --nothing",
        ] {
            let words = ["paint", "--brush"].into_iter().chain(line.split(' '));
            assert!(rebuilt().try_get_matches_from(words).is_ok(), "{line}");
        }
        for line in [
            "--brush",
            "w",
            "w --brush --roller",
            "w --brush --color red",
            "w --brush --colour green",
            "w --brush --layers x",
            "w --brush --layers 1 --nothing",
            "w --brush x",
        ] {
            let words: Vec<&str> = ["paint"]
                .into_iter()
                .chain(line.split_whitespace())
                .collect();
            assert!(Paint::try_parse_from(&words).is_err(), "{line}");
            let error = rebuilt().try_get_matches_from(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
